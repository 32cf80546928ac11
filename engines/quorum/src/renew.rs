//! Renewing claims: one call per node for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use palisade_core::{BootInstant, Claim, ClaimId, GoneReason, Renewed, Result};

use crate::ballot::{Ballot, Phase, Seat, Standing, honoured_until, more_telling};
use crate::core::Core;
use crate::error::{Failure, too_few};

/// One claim of the caller, and what its nodes said.
struct Renewing {
    claim: Arc<Claim>,
    ballot: Option<Arc<Ballot>>,
    /// How many nodes must know it for it to stand: a majority, or one while it waits in line.
    needed: usize,
    asked: usize,
    answered: usize,
    ends: Vec<BootInstant>,
    gone: usize,
    reason: GoneReason,
}

type Share = Vec<(usize, Arc<Claim>)>;

impl Core {
    pub(crate) async fn renew(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.check_open()?;
        let sent = self.clock.now();
        let mut renewing = Vec::with_capacity(claims.len());
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        for (at, claim) in claims.iter().enumerate() {
            let (entry, share) = self.share(claim);
            for (node, claim) in share {
                shares.entry(node).or_default().push((at, claim));
            }
            renewing.push(entry);
        }
        let mut calls: FuturesUnordered<_> = shares
            .into_iter()
            .map(|(node, share)| Arc::clone(self).send_renewal(node, share).boxed())
            .collect();
        let mut troubles = Vec::new();
        let mut clear = false;
        // Once it is clear what to say, only what has come already is taken in.
        while let Some((node, share, answer)) =
            if clear { calls.next().now_or_never().flatten() } else { calls.next().await }
        {
            Self::hear(&mut renewing, node, &share, answer.as_ref().ok(), sent);
            if let Err(error) = answer {
                troubles.push((self.voters[node].node.name.clone(), Failure::of(&error)));
            }
            clear = renewing.iter().all(Renewing::is_clear);
        }
        if !calls.is_empty() {
            // The others are renewed too, in their own time.
            self.spawn(async move { while calls.next().await.is_some() {} });
        }
        let verdicts: Vec<_> = renewing.iter().map(|entry| self.verdict(entry)).collect();
        for ballot in renewing.iter().filter_map(|entry| entry.ballot.as_ref()) {
            self.seed(ballot);
        }
        let clear = verdicts.iter().flatten().count();
        let mut answers = Vec::with_capacity(renewing.len());
        for (entry, verdict) in renewing.iter().zip(verdicts) {
            let stands = entry.ballot.as_ref().map(|ballot| ballot.tally.lock().until);
            answers.push(match (verdict, stands) {
                (Some(verdict), _) => verdict,
                // One in doubt must not cost the others of its batch their answers: it stands as before.
                (None, Some(until)) if clear > 0 => Renewed::Valid { until },
                (None, _) => {
                    let failure = too_few(entry.answered, self.nodes(), &troubles);
                    return Err(failure.error().about(&entry.claim.resource));
                }
            });
        }
        Ok(answers)
    }

    fn share(&self, claim: &Arc<Claim>) -> (Renewing, Vec<(usize, Arc<Claim>)>) {
        let ballot = self.ballot(claim.id).filter(|ballot| !ballot.is_gone());
        let (needed, share): (usize, Vec<_>) = match &ballot {
            None => (self.majority, (0..self.nodes()).map(|node| (node, Arc::clone(claim))).collect()),
            Some(ballot) => {
                let tally = ballot.tally.lock();
                let there = tally.seats.iter().enumerate().filter(|(_, seat)| seat.is_there());
                let needed = if tally.granted.is_some() { self.majority } else { 1 };
                (needed, there.map(|(node, seat)| (node, Arc::clone(&seat.claim))).collect())
            }
        };
        let entry = Renewing {
            claim: Arc::clone(claim),
            ballot,
            needed,
            asked: share.len(),
            answered: 0,
            ends: Vec::new(),
            gone: 0,
            reason: GoneReason::Unknown,
        };
        (entry, share)
    }

    async fn send_renewal(
        self: Arc<Self>,
        node: usize,
        share: Share,
    ) -> (usize, Share, Result<Vec<Renewed>>) {
        let batch = self.voters[node].engine().map_or(usize::MAX, |engine| engine.profile().batch.max(1));
        let mut answers = Vec::with_capacity(share.len());
        for part in share.chunks(batch) {
            let part: Vec<_> = part.iter().map(|(_, claim)| Arc::clone(claim)).collect();
            let limit = self.limit_about(part.len());
            let asking = self.ask(limit, node, |engine| async move { engine.renew(&part).await });
            match asking.await {
                Ok(part) => answers.extend(part),
                Err(error) => return (node, share, Err(error)),
            }
        }
        (node, share, Ok(answers))
    }

    fn hear(
        renewing: &mut [Renewing],
        node: usize,
        share: &Share,
        answers: Option<&Vec<Renewed>>,
        sent: BootInstant,
    ) {
        for (position, (at, claim)) in share.iter().enumerate() {
            let entry = &mut renewing[*at];
            entry.asked -= 1;
            let Some(answer) = answers.and_then(|answers| answers.get(position)) else { continue };
            entry.answered += 1;
            match answer {
                Renewed::Valid { until } => {
                    let until = (*until).min(sent + claim.ttl.as_duration());
                    let held = entry.note(node, claim.id, |seat| seat.until = seat.until.max(until));
                    // A place in line is renewed as well, but it is no vote.
                    if entry.needed == 1 || held != Some(false) {
                        entry.ends.push(until);
                    }
                }
                Renewed::Gone(reason) => {
                    entry.gone += 1;
                    entry.reason = more_telling(entry.reason.clone(), reason.clone());
                    entry.note(node, claim.id, |seat| seat.standing = Standing::Gone(reason.clone()));
                }
            }
        }
    }

    /// What became of a claim; `None` if too few nodes said anything about it.
    fn verdict(&self, entry: &Renewing) -> Option<Renewed> {
        let until = honoured_until(entry.ends.clone(), entry.needed);
        let Some(ballot) = &entry.ballot else {
            // The reason is the nodes' own; a stranger's claim is asked about everywhere.
            return match until {
                Some(until) => Some(Renewed::Valid { until }),
                None if entry.gone >= self.majority => Some(Renewed::Gone(entry.reason.clone())),
                None => None,
            };
        };
        if let Phase::Gone(reason) = ballot.phase() {
            return Some(Renewed::Gone(reason));
        }
        let mut tally = ballot.tally.lock();
        if let Some(until) = until {
            // It was granted while this renewal of its place in line was under way: one node's word for a
            // place is no majority's for a grant.
            if tally.granted.is_none() || entry.needed >= self.majority {
                tally.until = tally.until.max(until);
            }
            return Some(Renewed::Valid { until: tally.until });
        }
        let waits = tally.granted.is_none();
        let evicted = matches!(entry.reason, GoneReason::Evicted { .. });
        let lost = if waits {
            // While it moves from one node to another, or none can be reached, the place stands.
            if tally.until > self.clock.now() && !evicted {
                return Some(Renewed::Valid { until: tally.until });
            }
            true
        } else {
            tally.gone().0 >= self.majority
        };
        drop(tally);
        if !lost {
            return None;
        }
        let reason = if waits && !evicted { GoneReason::Expired } else { entry.reason.clone() };
        ballot.tell(Phase::Gone(reason.clone()));
        Some(Renewed::Gone(reason))
    }
}

impl Renewing {
    fn is_clear(&self) -> bool {
        self.ends.len() >= self.needed || self.asked == 0
    }

    /// Notes something about a seat, unless the claim has moved on there. Returns whether the seat
    /// is a vote; `None` for a claim that this connection does not know.
    fn note(&self, node: usize, id: ClaimId, change: impl FnOnce(&mut Seat)) -> Option<bool> {
        let mut tally = self.ballot.as_ref()?.tally.lock();
        let seat = &mut tally.seats[node];
        let same = seat.claim.id == id && seat.is_there();
        let held = same && seat.token().is_some();
        if same {
            change(seat);
        }
        Some(held)
    }
}
