//! Keeping a held claim on as many nodes as will have it, and lifting its token.

use std::sync::Arc;

use futures::future::join_all;
use palisade_core::{BootInstant, Claimed, ErrorKind, GoneReason, Grant, Result, Token};

use crate::ballot::{Ballot, Phase, Standing, honoured_until};
use crate::core::Core;
use crate::error::error;
use crate::token::{Choice, choose};

impl Core {
    /// Claims anew, in the background, where a held claim is not known to stand: on nodes that had
    /// lost it, were taken, or could not be reached. It is held by a majority meanwhile.
    pub(crate) fn seed(self: &Arc<Self>, ballot: &Arc<Ballot>) {
        let now = self.clock.now();
        let nodes: Vec<usize> = {
            let mut tally = ballot.tally.lock();
            if tally.granted.is_none() || tally.until <= now || ballot.is_gone() {
                return;
            }
            let seats = tally.seats.iter_mut().enumerate();
            seats
                .filter(|(node, seat)| {
                    let evicted = matches!(seat.standing, Standing::Gone(GoneReason::Evicted { .. }));
                    seat.token().is_none() && !evicted && self.voters[*node].is_up()
                })
                .map(|(node, _)| node)
                .collect()
        };
        if nodes.is_empty() {
            return;
        }
        let Ok(driving) = Arc::clone(&ballot.driving).try_lock_owned() else { return };
        let (core, seeded) = (Arc::clone(self), Arc::clone(ballot));
        let work = async move {
            join_all(nodes.into_iter().map(|node| core.seed_at(&seeded, node, now))).await;
            drop(driving);
        };
        *ballot.task.lock() = self.spawn(work);
    }

    async fn seed_at(&self, ballot: &Ballot, node: usize, asked: BootInstant) {
        let claim = {
            let mut tally = ballot.tally.lock();
            let floor = tally.granted.and_then(|token| Token::new(token.get() - 1));
            let seat = &mut tally.seats[node];
            if matches!(seat.standing, Standing::Gone(_)) && !seat.leave(ballot.claim.id).1 {
                return;
            }
            if !seat.is_there() {
                seat.standing = Standing::Doubtful;
            }
            let claim = Arc::make_mut(&mut seat.claim);
            (claim.will_wait, claim.token_floor) = (false, floor);
            Arc::clone(&seat.claim)
        };
        self.claim_at(ballot, node, claim, asked).await;
    }

    /// Claims on one node, and notes how it stands there.
    async fn claim_at(
        &self,
        ballot: &Ballot,
        node: usize,
        claim: Arc<palisade_core::Claim>,
        asked: BootInstant,
    ) {
        let latest = asked + claim.ttl.as_duration();
        let answer = self.ask(self.limit(), node, |engine| async move { engine.claim(&claim).await }).await;
        let mut tally = ballot.tally.lock();
        let seat = &mut tally.seats[node];
        match answer {
            Ok(Claimed::Granted(grant)) => {
                self.hints.see(grant.token);
                (seat.standing, seat.asked) = (Standing::Held(grant.token), asked);
                // Asked again, it is not renewed: it ends when it did.
                seat.until = grant.valid_until.min(latest);
            }
            Ok(Claimed::Queued(place)) => seat.standing = Standing::Queued { ahead: place.ahead },
            Ok(Claimed::Busy(_)) => seat.standing = Standing::Absent,
            Err(error) if error.kind() == ErrorKind::Lost => {
                let _ = seat.leave(ballot.claim.id);
            }
            Err(_) => {}
        }
    }

    /// Gives a held claim a token above `floor`.
    pub(crate) async fn lift(&self, ballot: &Ballot, floor: Token) -> Result<Grant> {
        let _driving = ballot.driving.lock().await;
        let mut floor = floor;
        for _ in 0..4 {
            let asked = self.clock.now();
            let below: Vec<usize> = {
                let tally = ballot.tally.lock();
                let seats = tally.seats.iter().enumerate();
                seats
                    .filter(|(_, seat)| seat.token().is_some_and(|token| token <= floor))
                    .map(|(n, _)| n)
                    .collect()
            };
            join_all(below.into_iter().map(|node| self.lift_at(ballot, node, floor, asked))).await;
            let mut tally = ballot.tally.lock();
            let votes = self.votes(&tally.seats, self.clock.now());
            let tokens: Vec<Token> = votes.iter().map(|(_, token, _)| *token).collect();
            match choose(&tokens, self.majority) {
                Some(Choice::Agreed(token)) if token > floor => {
                    let ends = votes.iter().map(|(_, _, until)| *until).collect();
                    let valid_until = honoured_until(ends, self.majority).unwrap_or(asked);
                    tally.granted = Some(token);
                    drop(tally);
                    let grant = Grant { token, slot: None, valid_until };
                    ballot.tell(Phase::Granted(grant.clone()));
                    return Ok(grant);
                }
                Some(Choice::WriteBack(token)) => {
                    floor = floor.max(Token::new(token.get() - 1).unwrap_or(floor));
                }
                _ => {}
            }
        }
        let message = "the token could not be lifted on a majority of the nodes";
        Err(error(ErrorKind::Unavailable, message).with_unknown_effect())
    }

    async fn lift_at(&self, ballot: &Ballot, node: usize, floor: Token, asked: BootInstant) {
        let claim = {
            let mut tally = ballot.tally.lock();
            let claim = Arc::make_mut(&mut tally.seats[node].claim);
            claim.token_floor = Some(floor);
            Arc::clone(&tally.seats[node].claim)
        };
        self.claim_at(ballot, node, claim, asked).await;
    }
}
