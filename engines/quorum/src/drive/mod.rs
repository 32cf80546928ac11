//! How a claim gets its votes.
//!
//! A free resource is taken in one round: every node is asked at once, and a majority of equal
//! votes is a grant. Rivals that ask for the same resource at the same moment would split the
//! vote. They do not fight for it: all of them queue at one node only, the *gate*, the first one
//! that answers. Elsewhere they ask without waiting, and give back at once what they got if the gate
//! keeps them in line. Whoever is let in at the gate is the only one that queues at the other
//! nodes, and gets them as soon as those before it let go.
//!
//! So a hand-over costs about three requests per node, however many wait. Where clients do not see
//! the same nodes, two may think that they are first in line. Then whoever has no majority for a
//! random, growing while gives back all votes but that of its gate.

mod line;

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, OptionFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use palisade_core::{
    BootInstant, Busy, Claim, ClaimId, Claimed, Effect, ErrorKind, GoneReason, Grant, Result, Token, Waited,
};
use tokio::sync::OwnedMutexGuard;

use crate::ballot::{Ballot, Phase, Standing, honoured_until};
use crate::core::Core;
use crate::error::{Failure, too_few};
use crate::token::{Choice, choose};

/// Whoever sends the claims of one ballot, until its fate is clear and every answer is in.
pub(crate) struct Driver {
    core: Arc<Core>,
    ballot: Arc<Ballot>,
    _driving: OwnedMutexGuard<()>,
    /// Claims and withdrawals under way.
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    waits: FuturesUnordered<BoxFuture<'static, (usize, ClaimId, Result<Waited>)>>,
    notes: Vec<Note>,
    gate: Option<usize>,
    /// The gate let us in, and the other nodes were asked.
    entered: bool,
    /// No majority is to be had, and the claim will not wait or cannot.
    refused: bool,
    /// How often the token was written back.
    rounds: u32,
    /// How often votes were given back to let a rival win.
    yields: u32,
    look_at: BootInstant,
}

/// What is known of one node in this round.
#[derive(Debug, Default)]
struct Note {
    /// A claim or a withdrawal is under way.
    asking: bool,
    /// Nothing of the claim was there, or could have been, before this round asked.
    fresh: bool,
    waiting: bool,
    busy: Option<Busy>,
    trouble: Option<Failure>,
}

enum Step {
    Claimed { node: usize, asked: BootInstant, answer: Result<Claimed> },
    Left { node: usize, claim: Arc<Claim>, done: bool },
}

impl Driver {
    /// More rounds than this of nodes that count on while they are written to are no bad luck.
    const ROUNDS: u32 = 6;

    pub(crate) fn new(core: &Arc<Core>, ballot: &Arc<Ballot>, driving: OwnedMutexGuard<()>) -> Self {
        let notes = (0..core.nodes()).map(|_| Note::default()).collect();
        Self {
            core: Arc::clone(core),
            ballot: Arc::clone(ballot),
            _driving: driving,
            steps: FuturesUnordered::new(),
            waits: FuturesUnordered::new(),
            notes,
            gate: None,
            entered: false,
            refused: false,
            rounds: 0,
            yields: 0,
            look_at: BootInstant::FAR_FUTURE,
        }
    }

    pub(crate) async fn run(mut self) {
        self.start();
        while !self.decide() {
            let core = Arc::clone(&self.core);
            let look = core.clock.sleep_until(self.look_at);
            let look: OptionFuture<_> = (self.look_at != BootInstant::FAR_FUTURE).then_some(look).into();
            tokio::select! {
                biased;
                Some(step) = self.steps.next(), if !self.steps.is_empty() => self.take(step),
                Some((node, id, answer)) = self.waits.next(), if !self.waits.is_empty() => {
                    self.woken(node, id, answer);
                }
                Some(()) = look => self.look(),
                () = core.reach.notified(), if !self.waits.is_empty() => self.reach_changed(),
                else => break,
            }
        }
        self.clean_up();
    }

    /// Asks every node at once: the gate with a place in line, the others without.
    fn start(&mut self) {
        let now = self.core.clock.now();
        let floor = self.floor();
        self.gate = (0..self.core.nodes()).find(|node| self.core.voters[*node].is_up());
        for node in 0..self.core.nodes() {
            let wait = self.ballot.claim.will_wait && self.gate == Some(node);
            let known = self.ballot.tally.lock().seats[node].standing.clone();
            if !matches!(known, Standing::Held(_) | Standing::Queued { .. }) {
                self.ask(node, wait, floor, now);
            }
        }
    }

    /// The floor that makes nodes vote the next hint, and not below what the caller asked for.
    fn floor(&self) -> Option<Token> {
        let hint = Token::new(self.core.hints.next().saturating_sub(1));
        hint.max(self.ballot.claim.token_floor)
    }

    fn ask(&mut self, node: usize, wait: bool, floor: Option<Token>, asked: BootInstant) {
        if self.notes[node].asking {
            return;
        }
        if let Err(failure) = self.core.voters[node].engine() {
            self.notes[node].trouble = Some(failure);
            return;
        }
        self.notes[node] = Note { asking: true, waiting: self.notes[node].waiting, ..Note::default() };
        let claim = {
            let mut tally = self.ballot.tally.lock();
            let seat = &mut tally.seats[node];
            self.notes[node].fresh = !seat.is_there();
            if !seat.is_there() {
                seat.standing = Standing::Doubtful;
            }
            let claim = Arc::make_mut(&mut seat.claim);
            claim.will_wait = wait;
            claim.token_floor = floor;
            Arc::clone(&seat.claim)
        };
        let core = Arc::clone(&self.core);
        let step = async move {
            let asking = core.ask(node, |engine| async move { engine.claim(&claim).await }.boxed());
            let answer = asking.await;
            Step::Claimed { node, asked, answer }
        };
        self.steps.push(step.boxed());
    }

    /// Gives back what a node granted, or may have; the claim has another id there from now on.
    fn give_back(&mut self, node: usize) {
        let old = {
            let mut tally = self.ballot.tally.lock();
            let old = tally.seats[node].leave(self.ballot.claim.id);
            if let Some(old) = &old {
                tally.leaving.push((node, Arc::clone(old)));
            }
            old
        };
        let Some(old) = old else {
            // Out of ids: whoever asked starts over with a claim of its own.
            self.ballot.tell(Phase::Gone(GoneReason::Unknown));
            return;
        };
        self.notes[node].asking = true;
        let core = Arc::clone(&self.core);
        let step = async move {
            let claims = [Arc::clone(&old)];
            let asking = core.ask(node, |engine| async move { engine.withdraw(&claims).await }.boxed());
            let done = asking.await.is_ok();
            Step::Left { node, claim: old, done }
        };
        self.steps.push(step.boxed());
    }

    fn wait_at(&mut self, node: usize) {
        if std::mem::replace(&mut self.notes[node].waiting, true) {
            return;
        }
        let Ok(engine) = self.core.voters[node].engine() else { return };
        let claim = Arc::clone(&self.ballot.tally.lock().seats[node].claim);
        self.waits.push(async move { (node, claim.id, engine.wait(&claim).await) }.boxed());
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Claimed { node, asked, answer } => {
                self.notes[node].asking = false;
                self.answered(node, asked, answer);
            }
            Step::Left { node, claim, done } => {
                self.notes[node].asking = false;
                if done {
                    self.ballot.tally.lock().leaving.retain(|(_, left)| left.id != claim.id);
                }
            }
        }
    }

    fn answered(&mut self, node: usize, asked: BootInstant, answer: Result<Claimed>) {
        let latest = asked + self.ballot.claim.ttl.as_duration();
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

    fn woken(&mut self, node: usize, id: ClaimId, answer: Result<Waited>) {
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
                if alive && seat.leave(self.ballot.claim.id).is_some() {
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

    /// Says what can be said, and sends what must be sent next. Returns whether all is done.
    fn decide(&mut self) -> bool {
        if self.ballot.is_gone() {
            return true;
        }
        let now = self.core.clock.now();
        if matches!(*self.ballot.phase.borrow(), Phase::Granted(_)) {
            return self.steps.is_empty();
        }
        let votes = self.core.votes(&self.ballot.tally.lock().seats, now);
        if !self.refused && votes.len() >= self.core.majority {
            return self.agree(&votes, now);
        }
        if self.refused || !self.may_win(votes.len()) {
            return if self.refused || !self.ballot.claim.will_wait {
                self.refuse()
            } else {
                self.line_up(now)
            };
        }
        false
    }

    /// Whether the answers still under way can bring a majority.
    fn may_win(&self, votes: usize) -> bool {
        let tally = self.ballot.tally.lock();
        let open = self.notes.iter().zip(&tally.seats);
        let open = open.filter(|(note, seat)| note.asking && seat.standing == Standing::Doubtful).count();
        votes + open >= self.core.majority
    }

    fn agree(&mut self, votes: &[(usize, Token, BootInstant)], now: BootInstant) -> bool {
        let tokens: Vec<Token> = votes.iter().map(|(_, token, _)| *token).collect();
        let target = match choose(&tokens, self.core.majority) {
            Some(Choice::Agreed(token)) => {
                let ends = votes.iter().map(|(_, _, until)| *until).collect();
                let valid_until = honoured_until(ends, self.core.majority).unwrap_or(now);
                let mut tally = self.ballot.tally.lock();
                (tally.granted, tally.until) = (Some(token), valid_until);
                drop(tally);
                self.ballot.tell(Phase::Granted(Grant { token, slot: None, valid_until }));
                // A place in line elsewhere is kept; nobody needs to wait for it.
                self.waits.clear();
                self.look_at = BootInstant::FAR_FUTURE;
                return self.steps.is_empty();
            }
            Some(Choice::WriteBack(token)) => token,
            None => return false,
        };
        let below: Vec<usize> =
            votes.iter().filter(|(_, token, _)| *token < target).map(|(node, ..)| *node).collect();
        if below.iter().any(|node| self.notes[*node].asking) {
            return false;
        }
        self.rounds += 1;
        if self.rounds > Self::ROUNDS || below.iter().all(|node| self.notes[*node].trouble.is_some()) {
            if matches!(*self.ballot.phase.borrow(), Phase::Queued(_)) {
                // Whoever waits starts over with a claim of its own.
                self.ballot.tell(Phase::Gone(GoneReason::Unknown));
                return true;
            }
            self.refused = true;
            return self.refuse();
        }
        for node in below {
            self.ask(node, false, Token::new(target.get() - 1), now);
        }
        false
    }

    /// Withdraws in the background what is in doubt, once nobody will ask for it any more.
    fn clean_up(&mut self) {
        // A withdrawal does that itself, and says what it found.
        if matches!(*self.ballot.phase.borrow(), Phase::Gone(GoneReason::Withdrawn)) {
            return;
        }
        let granted = self.ballot.tally.lock().granted.is_some();
        let mut left = std::mem::take(&mut self.ballot.tally.lock().leaving);
        if !granted {
            for (node, seat) in self.ballot.tally.lock().seats.iter_mut().enumerate() {
                if seat.is_there() {
                    left.extend(seat.leave(self.ballot.claim.id).map(|old| (node, old)));
                }
            }
        }
        for (node, claim) in left {
            self.core.withdraw_later(node, vec![claim]);
        }
    }

    fn too_few(&self) -> Failure {
        let troubles: Vec<_> = self
            .notes
            .iter()
            .zip(&self.core.voters)
            .filter_map(|(note, voter)| Some((voter.node.name.clone(), note.trouble.clone()?)))
            .collect();
        too_few(self.notes.len() - troubles.len(), self.notes.len(), &troubles)
    }
}
