//! Ending one claim by force, and changing what it publishes.

use std::sync::Arc;

use futures::future::join_all;
use palisade_core::{Change, Changed, Claim, ClaimId, Evicted, GoneReason, Name, Page, Result, Selector};

use crate::attempt;
use crate::ballot::{Ballot, Phase, more_telling};
use crate::core::Core;
use crate::error::{Failure, too_few};

impl Core {
    /// Ends a claim on every node, under whatever id it stands there.
    pub(crate) async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.check_open()?;
        let answers =
            join_all((0..self.nodes()).map(|node| self.evict_at(node, resource, claim, reason))).await;
        let mut troubles = Vec::new();
        let (mut answered, mut done) = (0, false);
        for (voter, answer) in self.voters.iter().zip(answers) {
            match answer {
                Ok(found) => {
                    answered += 1;
                    done |= found;
                }
                Err(error) => troubles.push((voter.node.name.clone(), Failure::of(&error))),
            }
        }
        if answered < self.majority {
            return Err(too_few(answered, self.nodes(), &troubles).error().about(resource));
        }
        Ok(if done { Evicted::Done } else { Evicted::NotFound })
    }

    async fn evict_at(&self, node: usize, resource: &Name, claim: ClaimId, reason: &str) -> Result<bool> {
        let selector = Selector::resource(resource.clone());
        let look = self.ask(self.limit_about(Page::default().limit), node, |engine| async move {
            engine.inspect(&selector, &Page::default()).await
        });
        let seen = look.await?;
        let all = seen.resources.iter().flat_map(|view| view.holders.iter().chain(&view.waiters));
        let mine = all.map(|view| view.claim).filter(|id| attempt::family(*id) == attempt::family(claim));
        let mut done = false;
        for id in mine.collect::<Vec<_>>() {
            let (resource, reason) = (resource.clone(), reason.to_owned());
            let asking = self
                .ask(self.limit(), node, |engine| async move { engine.evict(&resource, id, &reason).await });
            done |= asking.await? == Evicted::Done;
        }
        Ok(done)
    }

    pub(crate) async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.check_open()?;
        let ballot = self.ballot(claim.id);
        if let Some(ballot) = &ballot
            && let Phase::Gone(reason) = ballot.phase()
        {
            return Ok(Changed::Gone(reason));
        }
        if let Change::Mode(mode) = change {
            return Ok(match ballot {
                None => Changed::Gone(GoneReason::Unknown),
                Some(ballot) if ballot.claim.mode == *mode => Changed::Done,
                Some(_) => Changed::Refused("a quorum grants exclusive claims only".into()),
            });
        }
        if let (Some(ballot), Change::Value(value)) = (&ballot, change) {
            // Where it is claimed later, it is claimed with the new value.
            for seat in &mut ballot.tally.lock().seats {
                Arc::make_mut(&mut seat.claim).value.clone_from(value);
            }
        }
        let shares = self.shares(ballot.as_deref(), claim);
        let waits = ballot.is_some_and(|ballot| ballot.tally.lock().granted.is_none());
        let needed = if waits { 1 } else { self.majority };
        let limit = self.limit();
        let asked = shares.into_iter().map(|(node, claim)| {
            let change = change.clone();
            let asking =
                self.ask(limit.clone(), node, |engine| async move { engine.change(&claim, &change).await });
            async move { (node, asking.await) }
        });
        let (mut done, mut gone, mut reason, mut troubles) = (0, 0, GoneReason::Unknown, Vec::new());
        for (node, answer) in join_all(asked).await {
            match answer {
                Ok(Changed::Done) => done += 1,
                Ok(Changed::Gone(why)) => {
                    gone += 1;
                    reason = more_telling(reason, why);
                }
                Ok(refused @ Changed::Refused(_)) => return Ok(refused),
                Err(error) => troubles.push((self.voters[node].node.name.clone(), Failure::of(&error))),
            }
        }
        if done >= needed {
            return Ok(Changed::Done);
        }
        if gone >= needed {
            return Ok(Changed::Gone(reason));
        }
        Err(too_few(done + gone, self.nodes(), &troubles).error().about(&claim.resource))
    }

    /// Where a claim may stand, and under which id.
    fn shares(&self, ballot: Option<&Ballot>, claim: &Arc<Claim>) -> Vec<(usize, Arc<Claim>)> {
        match ballot {
            None => (0..self.nodes()).map(|node| (node, Arc::clone(claim))).collect(),
            Some(ballot) => {
                let tally = ballot.tally.lock();
                let there = tally.seats.iter().enumerate().filter(|(_, seat)| seat.is_there());
                there.map(|(node, seat)| (node, Arc::clone(&seat.claim))).collect()
            }
        }
    }
}
