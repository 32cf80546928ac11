//! What the answers of nodes come to.

use std::sync::Arc;

use palisade_core::{BootInstant, Claim, ClaimId, Claimed, Effect, ErrorKind, GoneReason, Result, Waited};

use super::{Driver, Step};
use crate::ballot::{Phase, Standing};
use crate::error::Failure;

impl Driver {
    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Claimed { node, asked, answer } => {
                self.notes[node].asking = false;
                self.answered(node, asked, answer);
            }
            Step::Left { node, claim, done } => {
                self.notes[node].asking = false;
                if done {
                    // A claim mostly has the same id on all nodes.
                    let here = |(at, left): &(usize, Arc<Claim>)| *at == node && left.id == claim.id;
                    self.ballot.tally.lock().leaving.retain(|one| !here(one));
                } else {
                    // It would stand in the way of all, of its own successor too, until it expires.
                    self.core.withdraw_later(node, vec![claim]);
                }
            }
        }
    }

    fn answered(&mut self, node: usize, asked: BootInstant, answer: Result<Claimed>) {
        let latest = asked + self.ballot.claim.ttl.as_duration();
        if answer.is_ok() && !self.ballot.phase.borrow().is_decided() {
            self.core.voters[node].was_prompt();
        }
        let mut tally = self.ballot.tally.lock();
        let seat = &mut tally.seats[node];
        match answer {
            Ok(Claimed::Granted(grant)) => {
                self.core.hints.see(grant.token);
                (seat.standing, seat.asked) = (Standing::Held(grant.token), asked);
                seat.until = grant.valid_until.min(latest);
            }
            Ok(Claimed::Queued(place)) => {
                (seat.standing, seat.asked) = (Standing::Queued { ahead: place.ahead }, asked);
                seat.until = place.valid_until.min(latest);
            }
            Ok(Claimed::Busy(busy)) => {
                seat.standing = Standing::Absent;
                self.notes[node].busy = Some(busy);
            }
            Err(error) => {
                let fresh = self.notes[node].fresh;
                if error.kind() == ErrorKind::Lost {
                    // The node has buried this id.
                    let _ = seat.leave(self.ballot.claim.id);
                } else if error.effect() == Effect::None && fresh {
                    seat.standing = Standing::Absent;
                }
                self.notes[node].trouble = Some(Failure::of(&error));
            }
        }
    }

    pub(super) fn woken(&mut self, node: usize, id: ClaimId, answer: Result<Waited>) {
        self.notes[node].waiting = false;
        let mut tally = self.ballot.tally.lock();
        let (until, ttl) = (tally.until, self.ballot.claim.ttl.as_duration());
        let seat = &mut tally.seats[node];
        if seat.claim.id != id {
            return;
        }
        match answer {
            Ok(Waited::Granted(grant)) => {
                self.core.hints.see(grant.token);
                let latest = self.core.clock.now() + ttl;
                seat.standing = Standing::Held(grant.token);
                seat.until = grant.valid_until.min(latest);
            }
            Ok(Waited::Gone(reason @ GoneReason::Evicted { .. })) => {
                seat.standing = Standing::Gone(reason.clone());
                drop(tally);
                // An operator who ends a claim that waits means the whole of it.
                self.ballot.tell(Phase::Gone(reason));
            }
            Ok(Waited::Gone(reason)) => {
                // Whoever is renewed has most of its time left; the node lost it on its own.
                let alive = until.saturating_since(self.core.clock.now()) > ttl / 3;
                if alive && seat.leave(self.ballot.claim.id).1 {
                    return;
                }
                drop(tally);
                self.ballot.tell(Phase::Gone(reason));
            }
            Err(error) => {
                seat.standing = Standing::Doubtful;
                drop(tally);
                self.core.heard(node, !error.is_transient());
                self.notes[node].trouble = Some(Failure::of(&error));
            }
        }
    }
}
