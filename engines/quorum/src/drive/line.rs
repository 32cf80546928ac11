//! What a claim does that cannot have a majority now: it waits at the gate, or is turned away.

use std::time::Duration;

use palisade_core::{BootInstant, Busy, Effect, ErrorKind, Place};

use super::{Driver, Note, Settling};
use crate::ballot::{Phase, Standing};
use crate::core::Core;
use crate::error::{Failure, listed, too_few};
use crate::merge::{busy, is_clear};

impl Driver {
    /// How soon to ask a node again that can neither queue nor say when to come back.
    const LOOK_AGAIN: Duration = Duration::from_millis(100);

    /// Gives everything back, and says why.
    pub(super) fn refuse(&mut self) -> bool {
        let held: Vec<usize> = self.where_it(|standing| matches!(standing, Standing::Held(_)));
        let idle: Vec<usize> = held.into_iter().filter(|node| !self.notes[*node].asking).collect();
        for node in idle {
            self.give_back(node);
        }
        let leaving = self.ballot.tally.lock().leaving.iter().any(|(node, _)| self.notes[*node].asking);
        if !leaving && !self.may_become_clear() && !self.ballot.phase.borrow().is_decided() {
            let verdict = self.verdict();
            self.ballot.tell(verdict);
        }
        // Answers that are still under way may be grants: they are given back as they come.
        self.is_idle()
    }

    /// Whether it is to be known yet which token the holder has, and a node that was asked may still tell: within its
    /// limit, which every question has.
    fn may_become_clear(&self) -> bool {
        self.notes.iter().any(|note| note.asking) && !is_clear(&self.refusals(), self.core.majority)
    }

    /// What those said who turned the claim away, and whose votes count.
    fn refusals(&self) -> Vec<Busy> {
        self.voting().filter_map(|note| note.busy.clone()).collect()
    }

    /// The nodes whose votes count now.
    fn voting(&self) -> impl Iterator<Item = &Note> {
        let now = self.core.clock.now();
        let notes = self.notes.iter().zip(&self.core.voters);
        notes
            .filter(move |(_, voter)| voter.forgetful(now, self.core.longest_ttl).is_none())
            .map(|(note, _)| note)
    }

    /// Which nodes did not answer as they should, and what came instead.
    fn troubles(&self) -> impl Iterator<Item = (String, Failure)> + '_ {
        let notes = self.notes.iter().zip(&self.core.voters);
        notes.filter_map(|(note, voter)| Some((voter.node.name.clone(), note.trouble.clone()?)))
    }

    fn too_few(&self) -> Failure {
        let troubles: Vec<_> = self.troubles().collect();
        too_few(self.notes.len() - troubles.len(), self.notes.len(), &troubles)
    }

    fn verdict(&self) -> Phase {
        let answers = self.refusals();
        let answered = self.notes.iter().filter(|note| note.trouble.is_none()).count();
        if answered < self.core.majority {
            return Phase::Failed(self.too_few());
        }
        // Where too few vote, nobody can hold.
        let can_vote = self.voting().filter(|note| note.trouble.is_none()).count() >= self.core.majority;
        if can_vote && !answers.is_empty() {
            return Phase::Busy(busy(&answers, self.core.majority));
        }
        Phase::Failed(self.why_no_majority())
    }

    /// All nodes answered, none was taken, and still there is no majority.
    fn why_no_majority(&self) -> Failure {
        let now = self.core.clock.now();
        let forgetful: Vec<String> = self
            .core
            .voters
            .iter()
            .filter_map(|voter| {
                let left = voter.forgetful(now, self.core.longest_ttl)?;
                Some(format!("{} for another {left:.1?}", voter.node.name))
            })
            .collect();
        let message = if forgetful.is_empty() {
            let troubles: Vec<_> = self.troubles().collect();
            format!("the nodes' tokens could not be brought together{}", listed(&troubles))
        } else {
            let list = forgetful.join(", ");
            format!("nodes that may have forgotten what they had granted do not vote: {list}")
        };
        // What was given back for certain had no effect.
        let doubt = !self.ballot.tally.lock().leaving.is_empty();
        let effect = if doubt { Effect::Unknown } else { Effect::None };
        Failure { kind: ErrorKind::Unavailable, message, effect }
    }

    /// Takes the claim's next step in line.
    pub(super) fn line_up(&mut self, now: BootInstant) -> bool {
        let answering = self.notes.iter().filter(|note| note.trouble.is_none()).count();
        if answering < self.core.majority && !self.notes.iter().any(|note| note.asking) {
            return self.cannot_line_up(now);
        }
        let Some(gate) = self.find_gate() else { return self.cannot_line_up(now) };
        let standing = self.ballot.tally.lock().seats[gate].standing.clone();
        if self.notes[gate].asking && !matches!(standing, Standing::Held(_)) {
            return false;
        }
        match standing {
            Standing::Held(token) => self.enter(gate, token.get(), now),
            Standing::Queued { .. } => {
                self.keep_only(gate);
                self.wait_at(gate);
                self.queued_at(gate);
                let soon = now + self.ballot.claim.ttl.as_duration() / 6;
                let end = self.ballot.tally.lock().until + self.core.node_timeout;
                (self.look_at, self.retries) = (end.min(soon), false);
            }
            Standing::Absent | Standing::Doubtful | Standing::Gone(_) => {
                self.keep_only(gate);
                let pause = self.notes[gate].busy.as_ref().map(|busy| busy.look_again_in);
                match pause.filter(|_| self.asked_to_wait(gate)) {
                    // It cannot queue: it is asked again after a while.
                    Some(pause) => {
                        self.queued_at(gate);
                        let look_at = now + Core::jittered(pause.unwrap_or(Self::LOOK_AGAIN));
                        self.look_at = self.look_at.min(look_at);
                    }
                    None => {
                        let floor = self.floor();
                        self.ask(gate, true, floor, now);
                    }
                }
            }
        }
        false
    }

    fn asked_to_wait(&self, node: usize) -> bool {
        self.ballot.tally.lock().seats[node].claim.will_wait
    }

    /// The node at which to stand in line: the first that answers. One that lets us in is not left.
    fn find_gate(&mut self) -> Option<usize> {
        let usable = |driver: &Self, node: usize| {
            driver.notes[node].trouble.is_none() && driver.core.voters[node].engine().is_ok()
        };
        let held = self.where_it(|standing| matches!(standing, Standing::Held(_)));
        let kept = self.gate.filter(|gate| usable(self, *gate));
        let early =
            held.into_iter().find(|node| kept.is_some_and(|gate| *node < gate) && usable(self, *node));
        let gate = early.or(kept).or_else(|| (0..self.notes.len()).find(|node| usable(self, *node)));
        if gate != self.gate {
            (self.gate, self.entered) = (gate, false);
        }
        gate
    }

    /// The gate let us in: from here on the other nodes are ours as soon as they are free.
    fn enter(&mut self, gate: usize, token: u64, now: BootInstant) {
        if !std::mem::replace(&mut self.entered, true) {
            // One hint for all, the gate included, so that any majority agrees.
            let floor = self.floor().max(palisade_core::Token::new(token.saturating_sub(1)));
            for node in 0..self.notes.len() {
                let standing = self.ballot.tally.lock().seats[node].standing.clone();
                let ask = match standing {
                    Standing::Held(vote) => Some(vote) <= floor,
                    Standing::Queued { .. } => false,
                    _ => self.notes[node].trouble.is_none(),
                };
                if ask {
                    self.ask(node, true, floor, now);
                }
            }
            (self.look_at, self.retries) = (now + self.patience(), false);
            (self.began, self.settling) = (now, Settling::NotYet);
        }
        for node in 0..self.notes.len() {
            let standing = self.ballot.tally.lock().seats[node].standing.clone();
            let note = &self.notes[node];
            match standing {
                Standing::Queued { .. } => self.wait_at(node),
                Standing::Absent | Standing::Doubtful
                    if !note.asking && note.trouble.is_none() && note.busy.is_none() =>
                {
                    let floor = self.floor();
                    self.ask(node, true, floor, now);
                }
                _ => {}
            }
        }
        if !self.notes.iter().any(|note| note.asking) {
            self.queued_at(gate);
        }
    }

    /// How long to hold votes without a majority: longer each time.
    fn patience(&self) -> Duration {
        let longest = (self.ballot.claim.ttl.as_duration() / 6).max(self.core.node_timeout);
        Core::jittered((self.core.node_timeout * 2u32.pow(self.yields.min(10))).min(longest))
    }

    /// Lets go of every vote but the gate's, also of those that may have come unheard.
    fn keep_only(&mut self, gate: usize) {
        let others = self.where_it(|standing| matches!(standing, Standing::Held(_) | Standing::Doubtful));
        for node in others {
            if node != gate && !self.notes[node].asking {
                self.give_back(node);
            }
        }
    }

    fn queued_at(&mut self, gate: usize) {
        let mut tally = self.ballot.tally.lock();
        let seat = &tally.seats[gate];
        let ahead = if let Standing::Queued { ahead } = seat.standing { ahead } else { 0 };
        let known = matches!(seat.standing, Standing::Queued { .. } | Standing::Held(_));
        let valid_until = if known { seat.until.max(tally.until) } else { tally.until };
        tally.until = valid_until;
        drop(tally);
        self.ballot.tell(Phase::Queued(Place { ahead, valid_until }));
    }

    /// Too few nodes answer. Who has not been told anything yet is told so; who waits tries again.
    fn cannot_line_up(&mut self, now: BootInstant) -> bool {
        if !matches!(*self.ballot.phase.borrow(), Phase::Queued(_)) {
            self.refused = true;
            return self.refuse();
        }
        // Soon, whatever else is waited for: it may have been let in meanwhile, and keep all others waiting. Not counted where it
        // looks soon anyway, or the pauses would grow twice as fast.
        let soon = now + self.patience();
        if !std::mem::replace(&mut self.retries, true) && soon < self.look_at {
            self.yields += 1;
            self.look_at = soon;
        }
        false
    }

    /// Time has passed without a majority.
    pub(super) fn look(&mut self) {
        let now = self.core.clock.now();
        // The node at which it waits says so itself, and a little later: it heard of it later.
        if now >= self.ballot.tally.lock().until + self.core.node_timeout {
            self.ballot.tell(Phase::Gone(palisade_core::GoneReason::Expired));
            return;
        }
        for note in &mut self.notes {
            note.trouble = None;
            note.busy = None;
        }
        (self.look_at, self.retries) = (BootInstant::FAR_FUTURE, false);
        self.reach_changed();
        self.return_to_first_gate();
        if self.entered {
            if let Some(gate) = self.gate {
                self.keep_only(gate);
            }
            self.yields += 1;
            self.look_at = now + self.patience();
        }
    }

    /// Whoever was let in at a later gate, because an earlier node was late once, goes back to the first that answers.
    /// Else as many as there are nodes may each keep one of them, and nobody ever has a majority. Who only waits there
    /// is in nobody's way, and keeps its place.
    fn return_to_first_gate(&mut self) {
        let answers = |node: &usize| self.core.voters[*node].is_up() && self.notes[*node].trouble.is_none();
        let first = (0..self.notes.len()).find(answers);
        if self.entered && first.zip(self.gate).is_some_and(|(first, gate)| first < gate) {
            (self.gate, self.entered) = (first, false);
        }
    }

    /// A node came or went: who waits at one that is gone stands in line elsewhere.
    pub(super) fn reach_changed(&mut self) {
        let Some(gate) = self.gate else { return };
        if !self.core.voters[gate].is_up() && self.notes[gate].trouble.is_none() {
            self.notes[gate].trouble = Some(Failure::new(ErrorKind::Unavailable, "it does not answer"));
        }
    }

    fn where_it(&self, stands: impl Fn(&Standing) -> bool) -> Vec<usize> {
        let tally = self.ballot.tally.lock();
        let seats = tally.seats.iter().enumerate();
        seats.filter(|(_, seat)| stands(&seat.standing)).map(|(node, _)| node).collect()
    }
}
