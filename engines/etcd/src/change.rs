use std::sync::Arc;

use bytes::Bytes;
use palisade_core::{Change, Changed, Claim, ModeChange, Result};

use crate::engine::Inner;
use crate::error::{contended, unexpected};
use crate::line::Line;
use crate::take::TRIES;
use crate::txn::{Txn, put};

impl Inner {
    pub(crate) async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        for _ in 0..TRIES {
            let line = self.line_of(&claim.resource).await?;
            let Some(at) = line.place_of(claim.id) else {
                let reason = self.why_unknown(claim.id).await?;
                self.is_gone(claim.id, reason.clone());
                return Ok(Changed::Gone(reason));
            };
            let txn = match self.changing(claim, change, &line, at)? {
                Ok(txn) => txn,
                Err(answer) => return Ok(answer),
            };
            if self.link.txn(txn).await?.value.succeeded {
                return Ok(Changed::Done);
            }
        }
        Err(contended())
    }

    /// The transaction that makes the change, or the answer that needs none.
    fn changing(
        &self,
        claim: &Claim,
        change: &Change,
        line: &Line,
        at: usize,
    ) -> Result<Result<Txn, Changed>> {
        let (resource, entry) = (self.layout.resource(&claim.resource), &line.entries[at]);
        let Some(stored) = &entry.record else { return Err(unexpected()) };
        let same = entry.unchanged(&resource).into_iter().fold(Txn::new(), Txn::when);
        let mut record = stored.record.clone();
        let mut value = if record.value { entry.lock.value.clone() } else { Bytes::new() };
        let txn = match change {
            Change::Value(new) => {
                self.claims.stands_beside(claim.id);
                record.value = new.is_some();
                value = new.clone().unwrap_or_default();
                same
            }
            Change::Mode(to) => match line.mode(at).change_to(*to, line.holds(at)) {
                ModeChange::Same => return Ok(Err(Changed::Done)),
                ModeChange::Refused(why) => return Ok(Err(Changed::Refused(why.into()))),
                ModeChange::Downgrade => {
                    record.set_mode(*to);
                    same
                }
                // Counts for all who are there; their records need not be written.
                ModeChange::Resize(of) => same.then(put(resource.slots.clone(), of.to_string(), 0)),
            },
        };
        Ok(Ok(txn.then_all(entry.puts(&resource, &record, value))))
    }
}
