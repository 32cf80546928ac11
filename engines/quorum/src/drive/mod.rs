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

mod answers;
mod line;
mod round;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, OptionFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use palisade_core::{BootInstant, Busy, Claim, ClaimId, Claimed, GoneReason, Grant, Result, Token, Waited};
use tokio::sync::{OwnedMutexGuard, mpsc};

use crate::ballot::{Ballot, Phase, Standing, honoured_until};
use crate::core::Core;
use crate::error::Failure;
use crate::limit::Limit;
use crate::token::{Choice, choose};

/// Whoever sends the claims of one ballot, until its fate is clear and every answer is in.
pub(crate) struct Driver {
    core: Arc<Core>,
    ballot: Arc<Ballot>,
    _driving: OwnedMutexGuard<()>,
    /// Claims and withdrawals under way.
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    waits: FuturesUnordered<BoxFuture<'static, (usize, ClaimId, Result<Waited>)>>,
    /// How many answers are yet to come of a round, and where they come if this goes its own way.
    awaited: usize,
    late: Option<mpsc::UnboundedReceiver<Step>>,
    notes: Vec<Note>,
    /// The claim as a node was last asked for it.
    asked: Option<Arc<Claim>>,
    gate: Option<usize>,
    /// The gate let us in, and the other nodes were asked.
    entered: bool,
    /// No majority is to be had, and the claim will not wait or cannot.
    refused: bool,
    /// How often the token was written back.
    rounds: u32,
    /// How often there was no majority for a while: pauses grow with it.
    yields: u32,
    look_at: BootInstant,
    /// Too few nodes answered, and it was seen to that this looks again soon: then what was wrong with them is forgotten.
    retries: bool,
    /// When the first node was asked.
    began: BootInstant,
    settling: Settling,
}

/// Whether a majority that agrees waits for the others.
///
/// Whoever is granted something and gives it back at once would overtake the claims that are still under way,
/// which costs the nodes more than the claims do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settling {
    NotYet,
    Until(BootInstant),
    Over,
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

/// The outcome of something that was under way.
#[derive(Debug)]
pub(crate) enum Step {
    Claimed { node: usize, asked: BootInstant, answer: Result<Claimed> },
    Left { node: usize, claim: Arc<Claim>, done: bool },
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("ballot", &self.ballot.claim.id).finish_non_exhaustive()
    }
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
            awaited: 0,
            late: None,
            notes,
            asked: None,
            gate: None,
            entered: false,
            refused: false,
            rounds: 0,
            yields: 0,
            look_at: BootInstant::FAR_FUTURE,
            retries: false,
            began: core.clock.now(),
            settling: Settling::NotYet,
        }
    }

    pub(crate) async fn run(mut self) {
        let now = self.core.clock.now();
        let limit = self.core.limit();
        for (node, claim) in self.start(now) {
            self.send(limit.clone(), node, claim, now);
        }
        self.go_on().await;
    }

    pub(crate) async fn go_on(mut self) {
        let core = Arc::clone(&self.core);
        let mut timer: Option<(BootInstant, BoxFuture<'static, ()>)> = None;
        while !self.decide() {
            let wake_at = self.wake_at();
            if timer.as_ref().is_none_or(|(at, _)| *at != wake_at) {
                let armed = wake_at != BootInstant::FAR_FUTURE;
                timer = armed.then(|| (wake_at, core.clock.sleep_until(wake_at)));
            }
            let wake: OptionFuture<_> = timer.as_mut().map(|(_, timer)| timer).into();
            tokio::select! {
                biased;
                Some(step) = self.steps.next(), if !self.steps.is_empty() => self.take(step),
                Some(step) = round::next(&mut self.late), if self.awaited > 0 => self.take_awaited(step),
                Some((node, id, answer)) = self.waits.next(), if !self.waits.is_empty() => {
                    self.woken(node, id, answer);
                }
                Some(()) = wake => {
                    timer = None;
                    self.wake();
                }
                () = core.reach.notified(), if !self.waits.is_empty() => self.reach_changed(),
                else => break,
            }
        }
        self.end();
    }

    /// When to look again, whatever comes before.
    pub(crate) fn wake_at(&self) -> BootInstant {
        match self.settling {
            Settling::Until(end) => end.min(self.look_at),
            Settling::NotYet | Settling::Over => self.look_at,
        }
    }

    fn is_idle(&self) -> bool {
        self.steps.is_empty() && self.awaited == 0
    }

    pub(crate) fn wake(&mut self) {
        // Whoever agrees gives nothing back: it has waited long enough.
        if matches!(self.settling, Settling::Until(_)) {
            self.settling = Settling::Over;
        } else {
            self.look();
        }
    }

    /// Whether to wait for those who mostly answer soon: as long again as the majority took, at most.
    fn settles(&mut self, now: BootInstant) -> bool {
        const SHORTEST: Duration = Duration::from_millis(1);
        let asked = |driver: &Self, node: usize| driver.notes[node].asking;
        let late: Vec<usize> = (0..self.notes.len()).filter(|node| asked(self, *node)).collect();
        if !late.iter().any(|node| self.core.voters[*node].is_prompt(now)) {
            return false;
        }
        if self.settling == Settling::NotYet {
            self.settling = Settling::Until(now + now.saturating_since(self.began).max(SHORTEST));
        }
        if self.settling == Settling::Over {
            for node in late {
                self.core.voters[node].was_late(now, now.saturating_since(self.began));
            }
            return false;
        }
        true
    }

    /// What to ask of every node at once: of the gate a place in line, of the others none.
    fn start(&mut self, now: BootInstant) -> Vec<(usize, Arc<Claim>)> {
        self.began = now;
        let floor = self.not_below(self.core.hints.next());
        self.gate = (0..self.core.nodes()).find(|node| self.core.voters[*node].is_up());
        let mut asks = Vec::with_capacity(self.core.nodes());
        for node in 0..self.core.nodes() {
            let wait = self.ballot.claim.will_wait && self.gate == Some(node);
            let known = self.ballot.tally.lock().seats[node].standing.clone();
            if !matches!(known, Standing::Held(_) | Standing::Queued { .. }) {
                asks.extend(self.prepare(node, wait, floor).map(|claim| (node, claim)));
            }
        }
        asks
    }

    /// The floor that makes nodes vote the next hint, where rivals count too.
    fn floor(&self) -> Option<Token> {
        self.not_below(self.core.hints.ahead())
    }

    /// The floor that makes nodes vote a hint, and not below what the caller asked for.
    fn not_below(&self, hint: u64) -> Option<Token> {
        Token::new(hint.saturating_sub(1)).max(self.ballot.claim.token_floor)
    }

    fn ask(&mut self, node: usize, wait: bool, floor: Option<Token>, asked: BootInstant) {
        if let Some(claim) = self.prepare(node, wait, floor) {
            self.send(self.core.limit(), node, claim, asked);
        }
    }

    /// Notes that a node is about to be asked; for what. `None` if it cannot be.
    fn prepare(&mut self, node: usize, wait: bool, floor: Option<Token>) -> Option<Arc<Claim>> {
        if self.notes[node].asking {
            return None;
        }
        if let Err(failure) = self.core.voters[node].engine() {
            self.notes[node].trouble = Some(failure);
            return None;
        }
        self.notes[node] = Note { asking: true, waiting: self.notes[node].waiting, ..Note::default() };
        let claim = {
            let mut tally = self.ballot.tally.lock();
            let seat = &mut tally.seats[node];
            self.notes[node].fresh = !seat.is_there();
            if !seat.is_there() {
                seat.standing = Standing::Doubtful;
            }
            let same = |claim: &Claim| claim.will_wait == wait && claim.token_floor == floor;
            if !same(&seat.claim) {
                let claim = match &self.asked {
                    // Most nodes are asked the same.
                    Some(asked) if asked.id == seat.claim.id && same(asked) => Arc::clone(asked),
                    _ => {
                        let mut claim = (*seat.claim).clone();
                        (claim.will_wait, claim.token_floor) = (wait, floor);
                        Arc::new(claim)
                    }
                };
                seat.claim = claim;
            }
            self.asked = Some(Arc::clone(&seat.claim));
            Arc::clone(&seat.claim)
        };
        Some(claim)
    }

    fn send(&mut self, limit: Limit, node: usize, claim: Arc<Claim>, asked: BootInstant) {
        let core = Arc::clone(&self.core);
        let step = async move {
            let asking = core.ask(limit, node, |engine| async move { engine.claim(&claim).await });
            let answer = asking.await;
            Step::Claimed { node, asked, answer }
        };
        self.steps.push(step.boxed());
    }

    /// Gives back what a node granted, or may have; the claim has another id there from now on.
    fn give_back(&mut self, node: usize) {
        let (old, may_come_again) = {
            let mut tally = self.ballot.tally.lock();
            let left = tally.seats[node].leave(self.ballot.claim.id);
            tally.leaving.push((node, Arc::clone(&left.0)));
            left
        };
        if !may_come_again {
            // Out of ids: whoever asked starts over with a claim of its own.
            self.ballot.tell(Phase::Gone(GoneReason::Unknown));
        }
        self.notes[node].asking = true;
        let core = Arc::clone(&self.core);
        let step = async move {
            let claims = [Arc::clone(&old)];
            let asking = core.ask(core.limit(), node, |engine| async move { engine.withdraw(&claims).await });
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

    /// Says what can be said, and sends what must be sent next. Returns whether all is done.
    pub(crate) fn decide(&mut self) -> bool {
        if self.ballot.is_gone() {
            return true;
        }
        let now = self.core.clock.now();
        if matches!(*self.ballot.phase.borrow(), Phase::Granted(_)) {
            return self.is_idle();
        }
        if !self.refused && self.may_grant() >= self.core.majority {
            // Nothing can be won or lost yet.
            return false;
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

    /// How far above the greatest vote the next one is written back: further each time.
    fn leap(&self) -> u64 {
        if self.rounds == 0 { 0 } else { 256 << (2 * self.rounds) }
    }

    /// Whether the answers still under way can bring a majority.
    fn may_win(&self, votes: usize) -> bool {
        votes + self.may_grant() >= self.core.majority
    }

    /// How many nodes may grant it yet.
    fn may_grant(&self) -> usize {
        let tally = self.ballot.tally.lock();
        let asked = self.notes.iter().zip(&tally.seats);
        asked.filter(|(note, seat)| note.asking && seat.standing == Standing::Doubtful).count()
    }

    fn agree(&mut self, votes: &[(usize, Token, BootInstant)], now: BootInstant) -> bool {
        let tokens: Vec<Token> = votes.iter().map(|(_, token, _)| *token).collect();
        let greatest = match choose(&tokens, self.core.majority) {
            // Votes that are being raised would be above what was handed out, and shown in its place.
            Some(Choice::Agreed(_)) if self.writes_back(votes) || self.settles(now) => return false,
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
                return self.is_idle();
            }
            Some(Choice::WriteBack(token)) => token,
            None => return false,
        };
        // Where many count at once, nodes are ahead again by the time it is written to them: then further.
        let target = Token::new(greatest.get() + self.leap()).unwrap_or(greatest);
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

    /// Whether a vote is asked to be greater, and has not answered.
    fn writes_back(&self, votes: &[(usize, Token, BootInstant)]) -> bool {
        self.rounds > 0 && votes.iter().any(|(node, ..)| self.notes[*node].asking)
    }

    /// Withdraws in the background what is in doubt, once nobody will ask for it any more.
    pub(crate) fn end(self) {
        // A withdrawal does that itself, and says what it found.
        if self.ballot.is_withdrawn() {
            return;
        }
        let granted = self.ballot.tally.lock().granted.is_some();
        let mut left = std::mem::take(&mut self.ballot.tally.lock().leaving);
        if !granted {
            for (node, seat) in self.ballot.tally.lock().seats.iter_mut().enumerate() {
                if seat.is_there() {
                    left.push((node, seat.leave(self.ballot.claim.id).0));
                }
            }
        }
        for (node, claim) in left {
            self.core.withdraw_later(node, vec![claim]);
        }
    }
}
