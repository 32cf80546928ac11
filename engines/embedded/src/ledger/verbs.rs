use std::sync::Arc;

use palisade_core::{BootInstant, Change, Changed, Claim, Mode, ModeChange, Renewed, Withdrawn};
use rusqlite::params;

use super::Ledger;
use super::claim::nanos;
use crate::error::Step;
use crate::rows::{Line, mode_columns, sql};

impl Ledger<'_> {
    /// Renews claims; `asked` is the moment before the locks were taken.
    pub(crate) fn renew(&mut self, claims: &[Arc<Claim>], asked: u64) -> Step<Vec<Renewed>> {
        claims.iter().map(|claim| self.renew_one(claim, asked)).collect()
    }

    pub(crate) fn withdraw_all(&mut self, claims: &[Arc<Claim>]) -> Step<Vec<Withdrawn>> {
        claims.iter().map(|claim| self.withdraw(&claim.resource, claim.id)).collect()
    }

    fn renew_one(&mut self, claim: &Claim, asked: u64) -> Step<Renewed> {
        let until = asked.saturating_add(nanos(claim.ttl.as_duration()));
        if let Some(seq) = self.scene.notes.seq(claim.id)
            && self.extend(claim, seq, until)?
        {
            return Ok(Renewed::Valid { until: BootInstant::from_nanos(until) });
        }
        let (namespace, resource) = (self.scene.namespace, claim.resource.as_str());
        if let Some(line) = self.find(namespace, resource, claim.id)? {
            if self.extend(claim, line.seq, until)? {
                self.scene.notes.remember(claim.id, line.seq);
                return Ok(Renewed::Valid { until: BootInstant::from_nanos(until) });
            }
            self.purge(namespace, resource)?;
        }
        self.scene.notes.forget(claim.id);
        Ok(Renewed::Gone(self.why_gone(claim.id)?))
    }

    /// Moves the end of a claim that has not expired. Never back: an older call may come late.
    fn extend(&self, claim: &Claim, seq: i64, until: u64) -> Step<bool> {
        let changed = self
            .db
            .prepare_cached(
                "UPDATE claim SET expires_ns = max(expires_ns, ?5) WHERE namespace = ?1 AND resource = ?2 AND seq = ?3 AND id = ?4 AND expires_ns > ?6",
            )?
            .execute(params![
                self.scene.namespace,
                claim.resource.as_str(),
                seq,
                claim.id.as_bytes(),
                sql(until),
                sql(self.now)
            ])?;
        Ok(changed == 1)
    }

    /// Changes a claim's mode or value.
    pub(crate) fn change(&mut self, claim: &Claim, change: &Change) -> Step<Changed> {
        let (namespace, resource) = (self.scene.namespace, claim.resource.as_str());
        let line = match self.find(namespace, resource, claim.id)? {
            Some(line) if line.expires > self.now => line,
            _ => {
                self.purge(namespace, resource)?;
                return Ok(Changed::Gone(self.why_gone(claim.id)?));
            }
        };
        match change {
            Change::Value(value) => {
                self.db
                    .prepare_cached(
                        "UPDATE claim SET value = ?4 WHERE namespace = ?1 AND resource = ?2 AND seq = ?3",
                    )?
                    .execute(params![namespace, resource, line.seq, value.as_deref()])?;
            }
            Change::Mode(to) => match line.mode.change_to(*to, line.held) {
                ModeChange::Same => {}
                ModeChange::Downgrade => self.set_mode(resource, &line, Mode::Shared)?,
                ModeChange::Resize(of) => {
                    self.db
                        .prepare_cached(
                            "UPDATE claim SET slots = ?3 WHERE namespace = ?1 AND resource = ?2 AND mode = 2",
                        )?
                        .execute(params![namespace, resource, of])?;
                }
                ModeChange::Refused(why) => return Ok(Changed::Refused(why.into())),
            },
        }
        self.settle(namespace, resource, None)?;
        Ok(Changed::Done)
    }

    fn set_mode(&self, resource: &str, line: &Line, mode: Mode) -> Step<()> {
        let (mode, slots) = mode_columns(mode);
        self.db
            .prepare_cached(
                "UPDATE claim SET mode = ?4, slots = ?5 WHERE namespace = ?1 AND resource = ?2 AND seq = ?3",
            )?
            .execute(params![self.scene.namespace, resource, line.seq, mode, slots])?;
        Ok(())
    }
}
