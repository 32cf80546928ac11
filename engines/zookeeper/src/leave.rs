use std::sync::Arc;

use palisade_core::{
    Claim, ClaimId, Clock, Effect, Evicted, GoneReason, Mode, Name, Result, SystemClock, Withdrawn,
};

use crate::claims::{Knowledge, Stand};
use crate::engine::Inner;
use crate::error::{Code, code_of};
use crate::keys::{Called, Mark};
use crate::line::Line;
use crate::proto::{Kind, Part, delete, get_children, multi};

impl Inner {
    pub(crate) async fn withdraw(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        const AT_ONCE: usize = 256;
        if self.is_closed() {
            return Err(crate::error::closed());
        }
        let mut answers = Vec::with_capacity(claims.len());
        for some in claims.chunks(AT_ONCE) {
            // Each is sent without waiting for the one before.
            let leaving = some.iter().map(|claim| self.withdraw_one(claim));
            answers.extend(futures::future::try_join_all(leaving).await?);
        }
        Ok(answers)
    }

    async fn withdraw_one(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Withdrawn> {
        let Some(known) = self.claims.get(claim.id) else { return self.withdraw_strange(claim).await };
        let _turn = known.gate.lock().await;
        let Some(known) = self.claims.get(claim.id) else { return Ok(Withdrawn::AlreadyGone) };
        match &known.stand {
            Stand::Gone(_) => {
                self.claims.forget(claim.id, GoneReason::Withdrawn);
                Ok(Withdrawn::AlreadyGone)
            }
            Stand::Lapsed { .. } => {
                self.remove(&known).await?;
                self.claims.forget(claim.id, GoneReason::Withdrawn);
                Ok(Withdrawn::AlreadyGone)
            }
            Stand::Asked | Stand::Waiting | Stand::Held(_) => {
                let answer = self.remove(&known).await?;
                if known.seat.node.is_some() {
                    self.claims.forget(claim.id, GoneReason::Withdrawn);
                } else {
                    // Whoever asked for it may do so again.
                    self.claims.gone(claim.id, GoneReason::Withdrawn);
                }
                Ok(answer)
            }
        }
    }

    /// Deletes a claim of ours, which may be there or on its way.
    pub(crate) async fn remove(&self, known: &Knowledge) -> Result<Withdrawn> {
        let mut doubt = false;
        loop {
            match self.try_remove(known).await {
                // With its session it is gone, too.
                Err(error) if code_of(&error) == Some(Code::SESSION_EXPIRED) => {
                    return Ok(Withdrawn::AlreadyGone);
                }
                // Whether it was deleted is seen by asking once more.
                Err(error) if error.effect() == Effect::Unknown && !doubt => doubt = true,
                // It was there, and ours, when it was deleted by what was not answered.
                Ok(Withdrawn::AlreadyGone) if doubt && known.until > SystemClock.now() => {
                    let held = matches!(known.stand, Stand::Held(_));
                    return Ok(if held { Withdrawn::Released } else { Withdrawn::LeftQueue });
                }
                removed => return removed,
            }
        }
    }

    async fn try_remove(&self, known: &Knowledge) -> Result<Withdrawn> {
        let folder = self.layout.resource(&known.claim.resource);
        let session = &known.seat.session;
        let node = match &known.seat.node {
            Some(node) => Some(node.clone()),
            None => self.find(known).await?,
        };
        let Some(node) = node else { return Ok(Withdrawn::AlreadyGone) };
        let path = format!("{folder}/{}", node.name);
        let conn = session.conn().await?;
        if matches!(known.stand, Stand::Held(_)) {
            let deleted = session.answer(conn.send(delete(&path))).await?.found()?;
            return Ok(if deleted.is_some() { Withdrawn::Released } else { Withdrawn::AlreadyGone });
        }
        if matches!(known.claim.mode, Mode::Slot { .. }) {
            return self.remove_slot(known, node.name).await;
        }
        // Its turn may have come without its having looked.
        let (look, deleted) = (conn.send(get_children(&folder, false)), conn.send(delete(&path)));
        let names = session.answer(look).await?.children()?.unwrap_or_default();
        if session.answer(deleted).await?.found()?.is_none() {
            return Ok(Withdrawn::AlreadyGone);
        }
        let line = Line::of_names(names);
        Ok(match line.place_of(known.claim.id) {
            Some(at) if line.is_plain(at) && line.holds(at) => Withdrawn::Released,
            _ => Withdrawn::LeftQueue,
        })
    }

    /// Deletes a claim of a slot, which may have got it without our having heard so. That needed the node by
    /// which it waited, so that it cannot come to it later.
    async fn remove_slot(&self, known: &Knowledge, mut name: String) -> Result<Withdrawn> {
        let folder = self.layout.resource(&known.claim.resource);
        loop {
            // By its own name: folders above may be called anything.
            let has_it = Called::parse(&name).is_some_and(|called| called.mark == Mark::Leased);
            let deleted = known.seat.session.ask(delete(&format!("{folder}/{name}"))).await?.found()?;
            match (deleted, has_it) {
                (Some(_), true) => return Ok(Withdrawn::Released),
                (Some(_), false) => return Ok(Withdrawn::LeftQueue),
                (None, true) => return Ok(Withdrawn::AlreadyGone),
                (None, false) => {}
            }
            let Some(node) = self.find(known).await? else { return Ok(Withdrawn::AlreadyGone) };
            name = node.name;
        }
    }

    /// Withdraws a claim that another connection made.
    async fn withdraw_strange(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Withdrawn> {
        // Whoever claims it here afterwards comes too late.
        self.claims.withdrawn(claim, &self.main(), SystemClock.now());
        loop {
            let line = self.line_of(&claim.resource).await?;
            let Some(at) = line.place_of(claim.id) else { return Ok(Withdrawn::AlreadyGone) };
            let path = format!("{}/{}", self.layout.resource(&claim.resource), line.entries[at].name);
            match self.main().ask(delete(&path)).await?.found()? {
                // Nothing, or by another node, with its slot.
                None => {}
                Some(_) if line.holds(at) => return Ok(Withdrawn::Released),
                Some(_) => return Ok(Withdrawn::LeftQueue),
            }
        }
    }

    pub(crate) async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        loop {
            let line = self.line_of(resource).await?;
            let Some(at) = line.place_of(claim) else { return Ok(Evicted::NotFound) };
            if self.evict_at(resource, &line, at, reason).await? {
                return Ok(Evicted::Done);
            }
            // It is gone, or there by another node, with its slot.
        }
    }

    /// Returns whether the claim at this place of the line was there to be deleted.
    async fn evict_at(&self, resource: &Name, line: &Line, at: usize, reason: &str) -> Result<bool> {
        let claim = line.entries[at].id();
        let entry = &line.entries[at];
        let path = format!("{}/{}", self.layout.resource(resource), entry.name);
        let mut done = false;
        if let Some(record) = entry.record() {
            let (alive, grave) =
                (self.layout.alive(&record.client), self.layout.grave(&record.client, claim));
            let (data, kind) = (reason.as_bytes(), Kind::Persistent);
            let parts = [
                Part::Delete { path: &path },
                Part::Check { path: &alive, version: -1 },
                Part::Create { path: &grave, data, kind, acl: self.acl() },
            ];
            done = match self.main().ask(multi(&parts)).await?.applied()? {
                Ok(()) => true,
                Err((0, _)) => return Ok(false),
                // Its client is gone: there is nobody to be told.
                Err(_) => false,
            };
        }
        if !done && self.main().ask(delete(&path)).await?.found()?.is_none() {
            return Ok(false);
        }
        if self.claims.get(claim).is_some() {
            self.is_gone(claim, GoneReason::Evicted { reason: reason.to_owned() });
        }
        Ok(true)
    }
}
