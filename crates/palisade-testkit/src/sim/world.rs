use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use palisade_core::{ClaimId, Signal};
use parking_lot::Mutex;

use super::dice::Dice;
use super::plan::{Fate, Fault, Plan};
use super::wire::{Envelope, Outcome, Slot};
use crate::check::Violation;
use crate::history::{Answer, Call, Event, Nanos, OpId, ProcessId};

/// A node, or the place where the server's timers belong.
pub(super) type NodeId = usize;

/// Whose timers are those of the server.
pub(super) const SERVER: NodeId = 63;

/// What will happen at some moment.
pub(super) enum Happening {
    /// A sleeper's time has come.
    Wake(NodeId, Waker),
    /// A request reaches the server.
    Arrive(Box<Envelope>),
    /// An answer reaches a node.
    Answered(NodeId, Arc<Slot>, Box<Outcome>),
    /// An unasked word reaches a node, if it still is this incarnation.
    Told(NodeId, u32, Signal),
    /// A fault of the plan strikes.
    Strike(usize),
    /// It is over.
    Heal(usize),
}

/// How a node's line stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    /// Requests are lost; whether in silence.
    pub(super) no_requests: Option<bool>,
    /// Answers are lost; whether in silence.
    pub(super) no_answers: Option<bool>,
    /// How much longer messages take, at most.
    pub(super) slow: Duration,
}

/// All that the simulated share: time, what lies ahead, and the record of what was.
#[derive(Clone)]
pub(super) struct World(Arc<Mutex<State>>);

pub(super) struct State {
    now: Nanos,
    turn: u64,
    agenda: BTreeMap<(Nanos, u64), Happening>,
    plan: Arc<Plan>,
    pub(super) links: Vec<Link>,
    /// No fault strikes any more.
    pub(super) is_calm: bool,
    /// How many requests each node has sent.
    sent: Vec<u64>,
    next_op: OpId,
    pub(super) events: Vec<Event>,
    pub(super) violations: Vec<Violation>,
    /// How many workers of each node have not ended yet.
    pub(super) working: Vec<usize>,
    /// Claims whose withdrawal the server has carried out.
    pub(super) withdrawn: BTreeSet<ClaimId>,
    /// Nodes whose client is closed or being closed.
    pub(super) leaving: Vec<bool>,
    /// When each node last went on after a pause.
    pub(super) went_on: Vec<Nanos>,
    /// How many steps of each task have begun.
    pub(super) begun: Vec<Vec<usize>>,
    /// `None` if nobody wants to read it.
    trace: Option<Vec<String>>,
}

impl World {
    /// Clocks show an hour at first, so that "earlier" has room.
    pub(super) const START: Nanos = 3_600_000_000_000;

    pub(super) fn new(plan: Arc<Plan>, traced: bool) -> Self {
        let nodes = plan.nodes.len();
        let begun = plan.nodes.iter().map(|node| vec![0; node.tasks.len()]).collect();
        Self(Arc::new(Mutex::new(State {
            now: Self::START,
            turn: 0,
            agenda: BTreeMap::new(),
            plan,
            links: vec![Link::default(); nodes],
            is_calm: false,
            sent: vec![0; nodes],
            next_op: 0,
            events: Vec::new(),
            violations: Vec::new(),
            working: vec![0; nodes],
            withdrawn: BTreeSet::new(),
            leaving: vec![false; nodes],
            went_on: vec![0; nodes],
            begun,
            trace: traced.then(Vec::new),
        })))
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock())
    }

    pub(super) fn now(&self) -> Nanos {
        self.0.lock().now
    }

    /// Takes the next happening up to `until` and moves the time to it; if there is none, moves
    /// the time to `until`.
    pub(super) fn next(&self, until: Nanos) -> Option<Happening> {
        let mut state = self.0.lock();
        match state.agenda.first_entry() {
            Some(first) if first.key().0 <= until => {
                let ((at, _), happening) = first.remove_entry();
                state.now = state.now.max(at);
                Some(happening)
            }
            _ => {
                state.now = state.now.max(until);
                None
            }
        }
    }

    /// Records a question.
    pub(super) fn ask(&self, process: ProcessId, key: &str, call: Call) -> OpId {
        let mut state = self.0.lock();
        state.next_op += 1;
        let (op, at) = (state.next_op, state.now);
        state.record(Event::Call { op, process, at, key: key.to_owned(), call });
        op
    }

    /// Records an answer.
    pub(super) fn answer(&self, op: OpId, answer: Answer) {
        let mut state = self.0.lock();
        let at = state.now;
        state.record(Event::Return { op, at, answer });
    }

    /// Records that a rule was broken.
    pub(super) fn violated(&self, checker: &'static str, key: &str, ops: Vec<OpId>, what: String) {
        let mut state = self.0.lock();
        let at = state.now;
        state.violations.push(Violation { checker, key: key.to_owned(), at, what, ops });
    }

    pub(super) fn take_trace(&self) -> Vec<String> {
        self.0.lock().trace.take().unwrap_or_default()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

/// What the line does with one message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Journey {
    pub(super) number: u64,
    pub(super) there: Duration,
    pub(super) back: Duration,
    /// Whether in silence.
    pub(super) request_lost: Option<bool>,
    pub(super) answer_lost: Option<bool>,
    /// How much later the request arrives once more.
    pub(super) twice: Option<Duration>,
}

impl State {
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// Writes a line of the trace; costs nothing if nobody reads it.
    pub(super) fn note(&mut self, line: fmt::Arguments<'_>) {
        let since = Duration::from_nanos(self.now - World::START);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{since:>14.6?}  {line}"));
        }
    }

    pub(super) fn record(&mut self, event: Event) {
        self.note(format_args!("{}", Brief(&event)));
        self.events.push(event);
    }

    /// Puts something on the agenda. Returns its place there.
    pub(super) fn plan_at(&mut self, at: Nanos, happening: Happening) -> (Nanos, u64) {
        self.turn += 1;
        self.agenda.insert((at, self.turn), happening);
        (at, self.turn)
    }

    pub(super) fn plan_in(&mut self, after: Duration, happening: Happening) {
        self.plan_at(self.now + after.as_nanos() as Nanos, happening);
    }

    /// A sleeper wants to be woken by another waker, or for the first time.
    pub(super) fn sleep(&mut self, place: (Nanos, u64), node: NodeId, waker: Waker) {
        self.agenda.insert(place, Happening::Wake(node, waker));
    }

    pub(super) fn forget(&mut self, place: (Nanos, u64)) {
        self.agenda.remove(&place);
    }

    /// Whether requests are on their way.
    pub(super) fn has_requests(&self) -> bool {
        self.agenda.values().any(|happening| matches!(happening, Happening::Arrive(_)))
    }

    /// How long a broken line goes unnoticed by who waits at its end.
    pub(super) fn keep_alive(&self) -> Duration {
        self.plan.call_timeout
    }

    /// How the next message of `node` will travel.
    pub(super) fn journey(&mut self, node: NodeId) -> Journey {
        let number = self.sent[node];
        self.sent[node] += 1;
        let link = self.links[node];
        let (least, most) = self.plan.nodes[node].latency;
        let mut dice = Dice::new(self.plan.seed, 1000 + node as u64 + number * 64);
        let slow = link.slow.as_nanos() as u64;
        let mut way = || {
            let usual = dice.between(least.as_nanos() as u64, most.as_nanos() as u64);
            Duration::from_nanos(usual + if slow > 0 { dice.below(slow) } else { 0 })
        };
        let mut journey = Journey {
            number,
            there: way(),
            back: way(),
            request_lost: link.no_requests,
            answer_lost: None,
            twice: None,
        };
        let faults = if self.is_calm { &[][..] } else { &self.plan.faults[..] };
        for fault in faults {
            match *fault {
                Fault::Message { node: of, number: at, fate } if of == node && at == number => {
                    journey.suffers(fate);
                }
                _ => {}
            }
        }
        journey
    }
}

impl Journey {
    fn suffers(&mut self, fate: Fate) {
        match fate {
            Fate::RequestLost { silent } => self.request_lost = Some(silent),
            Fate::AnswerLost { silent } => self.answer_lost = Some(silent),
            Fate::Twice { after } => self.twice = Some(after),
            Fate::RequestLate { by } => self.there += by,
            Fate::AnswerLate { by } => self.back += by,
        }
    }
}

/// An event in a few words.
struct Brief<'a>(&'a Event);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Event::Call { op, process, key, call, .. } => {
                write!(f, "process {process} asks #{op} {key}: {call:?}")
            }
            Event::Return { op, answer, .. } => write!(f, "#{op} is answered: {answer:?}"),
            Event::Valid { hold, until, .. } => write!(f, "#{hold} is valid until {until:?}"),
            Event::Lost { hold, reason, .. } => write!(f, "#{hold} is lost: {reason}"),
            Event::Died { process, .. } => write!(f, "process {process} died"),
            other => write!(f, "{other:?}"),
        }
    }
}
