use palisade_core::{ClaimId, Evicted, GoneReason, Name, Withdrawn};
use rusqlite::params;

use super::Ledger;
use crate::error::Step;
use crate::rows::{Line, line_columns, sql};
use crate::wake::News;

impl Ledger<'_> {
    /// Gives one claim back.
    pub(crate) fn withdraw(&mut self, resource: &Name, id: ClaimId) -> Step<Withdrawn> {
        let left = self.leave(resource, id)?;
        self.scene.notes.forget(id);
        let Some(line) = left else { return Ok(Withdrawn::AlreadyGone) };
        if line.held {
            return Ok(Withdrawn::Released);
        }
        // Someone of this process may still be waiting for it.
        self.wake(&line, News::Look);
        Ok(Withdrawn::LeftQueue)
    }

    /// Ends one claim by force.
    pub(crate) fn evict(&mut self, resource: &Name, id: ClaimId, reason: &str) -> Step<Evicted> {
        let Some(line) = self.leave(resource, id)? else { return Ok(Evicted::NotFound) };
        self.bury(&line, GoneReason::Evicted { reason: reason.to_owned() })?;
        Ok(Evicted::Done)
    }

    /// Takes a claim out of its queue and lets the next in. `None` if it was not there any more.
    fn leave(&mut self, resource: &Name, id: ClaimId) -> Step<Option<Line>> {
        let (namespace, resource) = (self.scene.namespace, resource.as_str());
        let front = self.settle(namespace, resource, Some(id))?;
        if front.left.is_some() || front.head.is_none() {
            return Ok(front.left);
        }
        let Some(line) = self.find(namespace, resource, id)? else { return Ok(None) };
        self.delete(namespace, resource, line.seq)?;
        self.tell_successor(namespace, resource, line.seq)?;
        if line.expires <= self.now {
            self.bury(&line, GoneReason::Expired)?;
            return Ok(None);
        }
        Ok(Some(line))
    }

    /// Ends everything of a resource that has expired, also far behind in the queue.
    pub(crate) fn purge(&mut self, namespace: &str, resource: &str) -> Step<()> {
        let expired = self
            .db
            .prepare_cached(concat!(
                "SELECT ",
                line_columns!(),
                " FROM claim WHERE namespace = ?1 AND resource = ?2 AND expires_ns <= ?3 ORDER BY seq"
            ))?
            .query_map(params![namespace, resource, sql(self.now)], Line::read)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        // Those in front go with the settling, which knows whom to tell.
        let front = self.settle(namespace, resource, None)?;
        let settled = front.head.map_or(i64::MAX, |head| head.seq);
        for line in expired.iter().filter(|line| line.seq > settled) {
            self.delete(namespace, resource, line.seq)?;
            self.bury(line, GoneReason::Expired)?;
            self.tell_successor(namespace, resource, line.seq)?;
        }
        Ok(())
    }
}
