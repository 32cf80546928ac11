//! Giving claims back, on every node that may know them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{FutureExt, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use palisade_core::{Claim, GoneReason, Result, Withdrawn};

use crate::ballot::{Ballot, Phase, Seat, Standing};
use crate::core::Core;
use crate::error::{Failure, too_few};
use crate::limit::Limit;

/// One claim of the caller, and what its nodes said.
struct Leaving {
    ballot: Option<Arc<Ballot>>,
    /// It had been granted, as far as this connection knows.
    held: bool,
    /// Of how many nodes an answer may come.
    asked: usize,
    answers: Vec<Withdrawn>,
    failed: usize,
}

/// Which of the caller's claims, and how a node knows it.
type Share = Vec<(usize, Arc<Claim>)>;

impl Core {
    /// How often a node that does not answer is asked again to let go.
    const RETRIES: u32 = 6;

    pub(crate) async fn withdraw(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.check_open()?;
        match claims {
            [claim] => Ok(vec![self.withdraw_soon(claim).await?]),
            claims => self.withdraw_each(claims).await.into_iter().collect(),
        }
    }

    /// Withdraws claims, with an answer for each.
    pub(crate) async fn withdraw_each(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Vec<Result<Withdrawn>> {
        let mut leaving = Vec::with_capacity(claims.len());
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        // All at once: nobody waits for another's claim to come to rest.
        let left = join_all(claims.iter().map(|claim| self.leave(claim))).await;
        for (at, (entry, share)) in left.into_iter().enumerate() {
            for (node, claim) in share {
                shares.entry(node).or_default().push((at, claim));
            }
            leaving.push(entry);
        }
        for (at, _) in shares.values().flatten() {
            leaving[*at].asked += 1;
        }
        let limit = self.limit_about(shares.values().map(Vec::len).max().unwrap_or(0));
        let mut calls: FuturesUnordered<_> = shares
            .into_iter()
            .map(|(node, share)| Arc::clone(self).send_withdrawal(limit.clone(), node, share))
            .collect();
        let mut troubles = Vec::new();
        let mut clear = false;
        // Once it is clear what to say, only what has come already is taken in.
        while let Some((node, share, answer)) =
            if clear { calls.next().now_or_never().flatten() } else { calls.next().await }
        {
            self.land(&mut leaving, &share, &answer);
            if let Err(error) = answer {
                troubles.push((self.voters[node].node.name.clone(), Failure::of(&error)));
                self.withdraw_later(node, share.into_iter().map(|(_, claim)| claim).collect());
            }
            clear = leaving.iter().all(|claim| claim.is_clear(self.majority));
        }
        let verdict = |claim: &Leaving| {
            if claim.is_in_doubt(self.majority) {
                return Err(too_few(claim.answers.len(), self.nodes(), &troubles).error());
            }
            Ok(claim.verdict(self.majority))
        };
        let verdicts = leaving.iter().map(verdict).collect();
        if !calls.is_empty() {
            let core = Arc::clone(self);
            self.spawn(async move {
                while let Some((node, share, answer)) = calls.next().await {
                    // With the last node's answer nothing of a claim has to be remembered any more.
                    core.land(&mut leaving, &share, &answer);
                    if answer.is_err() {
                        core.withdraw_later(node, share.into_iter().map(|(_, claim)| claim).collect());
                    }
                }
            });
        }
        verdicts
    }

    /// Ends whatever is still asked for a claim, and says which ids are to be withdrawn where.
    async fn leave(&self, claim: &Arc<Claim>) -> (Leaving, Vec<(usize, Arc<Claim>)>) {
        let Some(ballot) = self.ballot(claim.id) else {
            // Another connection's claim, or one that was withdrawn before.
            let everywhere = (0..self.nodes()).map(|node| (node, Arc::clone(claim))).collect();
            let stranger = Leaving { ballot: None, held: false, asked: 0, answers: Vec::new(), failed: 0 };
            return (stranger, everywhere);
        };
        ballot.tell(Phase::Gone(GoneReason::Withdrawn));
        ballot.stop();
        // What a round still asks for is given back by the round, once the node has answered. Only a claim that
        // was not granted yet has to wait for it; and a caller that neither drops its claim nor goes on with
        // it must not hold this up.
        let granted = ballot.tally.lock().granted.is_some();
        let asked_for = match ballot.driving.try_lock() {
            Ok(_) => false,
            Err(_) if granted && ballot.in_round.load(Ordering::Acquire) => true,
            Err(_) => {
                let _ = tokio::time::timeout(self.node_timeout, ballot.driving.lock()).await;
                false
            }
        };
        let tally = ballot.tally.lock();
        let there = |seat: &Seat| seat.is_there() && !(asked_for && seat.standing == Standing::Doubtful);
        let there = tally.seats.iter().enumerate().filter(|(_, seat)| there(seat));
        let mut share: Vec<_> = there.map(|(node, seat)| (node, Arc::clone(&seat.claim))).collect();
        share.extend(tally.leaving.iter().cloned());
        let held = tally.granted.is_some();
        drop(tally);
        let entry = Leaving { ballot: Some(ballot), held, asked: 0, answers: Vec::new(), failed: 0 };
        (entry, share)
    }

    async fn send_withdrawal(
        self: Arc<Self>,
        limit: Limit,
        node: usize,
        share: Share,
    ) -> (usize, Share, Result<Vec<Withdrawn>>) {
        let claims: Vec<_> = share.iter().map(|(_, claim)| Arc::clone(claim)).collect();
        let answer = self.withdraw_at(limit, node, claims).await;
        (node, share, answer)
    }

    /// Withdraws from one node, in as many calls as it needs; the limit is for the first of them.
    async fn withdraw_at(
        &self,
        limit: Limit,
        node: usize,
        claims: Vec<Arc<Claim>>,
    ) -> Result<Vec<Withdrawn>> {
        let batch = self.voters[node].engine().map_or(usize::MAX, |engine| engine.profile().batch.max(1));
        if claims.len() <= batch {
            return self.ask(limit, node, |engine| async move { engine.withdraw(&claims).await }).await;
        }
        let mut answers = Vec::with_capacity(claims.len());
        let mut first = Some(limit);
        for part in claims.chunks(batch) {
            let limit = first.take().unwrap_or_else(|| self.limit_about(part.len()));
            let part = part.to_vec();
            // Boxed, so that what goes in one call, as nearly all does, need not make room for it.
            let asking = self.ask(limit, node, |engine| async move { engine.withdraw(&part).await });
            answers.extend(Box::pin(asking).await?);
        }
        Ok(answers)
    }

    fn land(&self, leaving: &mut [Leaving], share: &Share, answer: &Result<Vec<Withdrawn>>) {
        for (position, (at, _)) in share.iter().enumerate() {
            let claim = &mut leaving[*at];
            match answer.as_ref().ok().and_then(|answers| answers.get(position)) {
                Some(answer) => claim.answers.push(*answer),
                None => claim.failed += 1,
            }
            // Nothing is left of it but what is withdrawn in the background; a repeated withdrawal finds the same on the
            // nodes. Otherwise a node that is silent for long would have all that is released kept for two TTLs.
            if claim.is_left(self.majority)
                && let Some(ballot) = claim.ballot.take()
            {
                self.forget(&ballot);
            }
        }
    }

    /// Withdraws in the background, for as long as the claims can live.
    pub(crate) fn withdraw_later(self: &Arc<Self>, node: usize, claims: Vec<Arc<Claim>>) {
        let Some(ttl) = claims.iter().map(|claim| claim.ttl.as_duration()).max() else { return };
        let (core, until) = (Arc::clone(self), self.clock.now() + ttl);
        self.spawn(async move {
            for retry in 0..Self::RETRIES {
                if core.withdraw_at(core.limit_about(claims.len()), node, claims.clone()).await.is_ok()
                    || core.clock.now() >= until
                {
                    return;
                }
                let pause = core.node_timeout.max(Duration::from_millis(10)) * 2u32.pow(retry);
                core.clock.sleep_until(core.clock.now() + Self::jittered(pause)).await;
            }
        });
    }
}

impl Leaving {
    fn released(&self) -> usize {
        self.answers.iter().filter(|answer| **answer == Withdrawn::Released).count()
    }

    fn open(&self) -> usize {
        self.asked - self.answers.len() - self.failed
    }

    /// Whether all nodes were heard or given up, and enough of them have let go.
    fn is_left(&self, majority: usize) -> bool {
        self.answers.len() == self.asked || (self.open() == 0 && self.released() >= majority)
    }

    /// Whether more answers would change nothing.
    fn is_clear(&self, majority: usize) -> bool {
        self.open() == 0 || (self.held && self.released() >= majority)
    }

    fn is_in_doubt(&self, majority: usize) -> bool {
        self.answers.len() < majority.min(self.asked) && self.failed > 0
    }

    fn verdict(&self, majority: usize) -> Withdrawn {
        let left = self.answers.iter().any(|answer| *answer != Withdrawn::AlreadyGone);
        // A stranger's claim is judged by what the nodes say alone.
        let held = self.held || self.released() >= majority;
        match held {
            // A node that did not answer is given the benefit of the doubt, as its TTL has not passed.
            true if self.released() + self.failed >= majority => Withdrawn::Released,
            false if left => Withdrawn::LeftQueue,
            _ => Withdrawn::AlreadyGone,
        }
    }
}
