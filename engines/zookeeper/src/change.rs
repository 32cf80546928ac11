use std::sync::Arc;

use palisade_core::{Change, Changed, Claim, ModeChange, Result};

use crate::engine::Inner;
use crate::error::contended;
use crate::folder::SLOTS;
use crate::proto::{Part, multi};
use crate::record::Record;
use crate::take::TRIES;

impl Inner {
    pub(crate) async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let folder = self.layout.resource(&claim.resource);
        for _ in 0..TRIES {
            let line = self.line_of(&claim.resource).await?;
            let Some(at) = line.place_of(claim.id) else {
                let reason = self.why_gone(claim.id).await?;
                self.is_gone(claim.id, reason.clone());
                return Ok(Changed::Gone(reason));
            };
            let entry = &line.entries[at];
            let Some(inside) = &entry.inside else { continue };
            let mut record = inside.record.clone().unwrap_or_else(|| Record::of(claim, &self.client, None));
            let (mut value, mut slots) = (inside.value.clone(), None);
            match change {
                Change::Value(new) => {
                    record.value = new.is_some();
                    value = new.clone().unwrap_or_default();
                }
                Change::Mode(to) => match line.mode(at).change_to(*to, line.holds(at)) {
                    ModeChange::Same => return Ok(Changed::Done),
                    ModeChange::Refused(why) => return Ok(Changed::Refused(why.into())),
                    ModeChange::Downgrade => record.set_mode(*to),
                    // Counts for all who are there; their records need not be written.
                    ModeChange::Resize(of) => slots = Some([SLOTS, of.to_string().as_bytes()].concat()),
                },
            }
            // The claim's node is written in any case: it is what others watch.
            let (path, data) = (format!("{folder}/{}", entry.name), record.bytes(&value));
            let mut parts = vec![Part::Set { path: &path, data: &data, version: inside.stat.version }];
            parts.extend(slots.as_ref().map(|data| Part::Set { path: &folder, data, version: line.version }));
            if self.main().ask(multi(&parts)).await?.applied()?.is_ok() {
                return Ok(Changed::Done);
            }
        }
        Err(contended())
    }
}
