//! Histories: what was asked, what was answered, who believed what, which faults struck.
//!
//! A history is a file of [`Event`]s, one JSON object per line, in the order in which the recorder
//! heard of them; times are nanoseconds of one machine's boot-time clock. Put together it is a
//! [`History`], which checkers read. A saved file can be checked again at any time.

mod event;
mod formats;
mod hold;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use self::event::{Answer, Begin, Call, Event, FaultKind, HoldMode};
pub use self::formats::Format;
pub use self::hold::{Ended, Hold};

/// Identifies an operation: unique in its history.
pub type OpId = u64;

/// A process, or whatever acts one operation at a time per key. A number is never used again
/// after its process has died.
pub type ProcessId = u64;

/// Nanoseconds since boot.
pub type Nanos = u64;

/// One operation, from call to answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// Its number.
    pub id: OpId,
    /// Who asked.
    pub process: ProcessId,
    /// What it concerns; operations on two keys are independent.
    pub key: Arc<str>,
    /// What was asked.
    pub call: Call,
    /// When, from before the request left.
    pub start: Nanos,
    /// When the answer was there; `None` if none came.
    pub end: Option<Nanos>,
    /// What was answered; [`Answer::Unknown`] if nothing was.
    pub answer: Answer,
}

impl Op {
    /// Whether it is known to have had no effect.
    pub fn had_no_effect(&self) -> bool {
        matches!(self.answer, Answer::Failed { .. })
    }

    /// Whether its effect is in doubt.
    pub fn is_unknown(&self) -> bool {
        matches!(self.answer, Answer::Unknown { .. })
    }
}

/// A fault, from when it struck until it was healed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpan {
    /// What kind.
    pub kind: FaultKind,
    /// Whom it struck, in words.
    pub target: String,
    /// The process that it struck, if it struck one.
    pub process: Option<ProcessId>,
    /// From when.
    pub from: Nanos,
    /// Until when; `None` for one that lasts to the end.
    pub until: Option<Nanos>,
}

/// What a holder said of its guard.
#[derive(Debug, Clone, Default)]
struct Belief {
    /// The last moment at which the guard is known to have called itself valid.
    valid_at: Option<Nanos>,
    /// The latest deadline it named.
    deadline: Option<Nanos>,
    /// When it was told that the hold is lost.
    lost_at: Option<Nanos>,
}

/// A whole run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// How it was made; `None` for one that another program recorded.
    pub begin: Option<Begin>,
    /// All operations, by the time they were asked.
    pub ops: Vec<Op>,
    /// All faults, by the time they struck.
    pub faults: Vec<FaultSpan>,
    /// When processes died.
    pub deaths: BTreeMap<ProcessId, Nanos>,
    /// Spans in which the machine itself stood still, so that no bound can be held against it.
    pub stalls: Vec<(Nanos, Nanos)>,
    /// From when on nothing disturbed any more, if the run came that far.
    pub calm_since: Option<Nanos>,
    beliefs: HashMap<OpId, Belief>,
}

impl History {
    /// Puts events together.
    ///
    /// # Errors
    /// If two operations have one number, or an answer has no question.
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Result<Self, String> {
        let mut builder = Builder::default();
        for event in events {
            builder.add(event)?;
        }
        Ok(builder.finish())
    }

    /// Reads the lines of a history file.
    ///
    /// # Errors
    /// If a line is no event, with its number. A last line that was cut off is left out: the
    /// recorder may have been killed.
    pub fn from_lines(text: &str) -> Result<Self, String> {
        let mut builder = Builder::default();
        let complete = text.ends_with('\n');
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
        while let Some((number, line)) = lines.next() {
            match serde_json::from_str(line) {
                Ok(event) => {
                    builder.add(event).map_err(|problem| format!("line {}: {problem}", number + 1))?;
                }
                Err(_) if lines.peek().is_none() && !complete => {}
                Err(problem) => return Err(format!("line {}: {problem}", number + 1)),
            }
        }
        Ok(builder.finish())
    }

    /// All keys, in order.
    pub fn keys(&self) -> Vec<Arc<str>> {
        let mut keys: Vec<Arc<str>> = self.ops.iter().map(|op| Arc::clone(&op.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The operations of each key, by the time they were asked.
    pub fn by_key(&self) -> BTreeMap<Arc<str>, Vec<&Op>> {
        let mut keys: BTreeMap<Arc<str>, Vec<&Op>> = BTreeMap::new();
        for op in &self.ops {
            keys.entry(Arc::clone(&op.key)).or_default().push(op);
        }
        keys
    }

    /// How many operations were answered and had, or may have had, an effect: what checkers look at.
    pub fn checked(&self) -> usize {
        self.ops.iter().filter(|op| op.end.is_some() && !op.had_no_effect()).count()
    }

    /// The first and the last moment that is known of.
    pub fn span(&self) -> (Nanos, Nanos) {
        let first = self.ops.first().map_or(0, |op| op.start);
        let last = self.ops.iter().map(|op| op.end.unwrap_or(op.start)).max().unwrap_or(first);
        (first, last)
    }
}

/// A history that is being put together.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    history: History,
    places: HashMap<OpId, usize>,
    keys: HashMap<String, Arc<str>>,
    faults: HashMap<u64, usize>,
}

impl Builder {
    pub(crate) fn add(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Begin(begin) => self.history.begin = Some(begin),
            Event::Call { op, process, at, key, call } => return self.call(op, process, at, key, call),
            Event::Return { op, at, answer } => {
                let place = self.places.get(&op).ok_or_else(|| format!("operation {op} was never asked"))?;
                let op = &mut self.history.ops[*place];
                op.end = Some(at);
                op.answer = answer;
                if let Answer::Granted { until: Some(until), .. } = op.answer {
                    self.history.beliefs.entry(op.id).or_default().deadline = Some(until);
                }
            }
            Event::Valid { hold, at, until } => {
                let belief = self.history.beliefs.entry(hold).or_default();
                belief.valid_at = belief.valid_at.max(Some(at));
                belief.deadline = belief.deadline.max(until);
            }
            Event::Lost { hold, at, .. } => {
                let belief = self.history.beliefs.entry(hold).or_default();
                belief.lost_at = Some(belief.lost_at.unwrap_or(at).min(at));
            }
            Event::Died { process, at } => drop(self.history.deaths.insert(process, at)),
            Event::Fault { fault, at, kind, target, process } => {
                self.faults.insert(fault, self.history.faults.len());
                self.history.faults.push(FaultSpan { kind, target, process, from: at, until: None });
            }
            Event::Healed { fault, at } => {
                let place = self.faults.get(&fault).ok_or_else(|| format!("fault {fault} never struck"))?;
                self.history.faults[*place].until = Some(at);
            }
            Event::Stalled { from, until } => self.history.stalls.push((from, until)),
            Event::Calm { at } => self.history.calm_since = Some(at),
        }
        Ok(())
    }

    fn call(
        &mut self,
        id: OpId,
        process: ProcessId,
        start: Nanos,
        key: String,
        call: Call,
    ) -> Result<(), String> {
        if self.places.insert(id, self.history.ops.len()).is_some() {
            return Err(format!("operation {id} was asked twice"));
        }
        let key = self.keys.entry(key).or_insert_with_key(|key| Arc::from(key.as_str()));
        let answer = Answer::Unknown { reason: "no answer came".to_owned() };
        self.history.ops.push(Op { id, process, key: Arc::clone(key), call, start, end: None, answer });
        Ok(())
    }

    pub(crate) fn finish(mut self) -> History {
        self.history.ops.sort_by_key(|op| (op.start, op.id));
        self.history.faults.sort_by_key(|fault| fault.from);
        self.history
    }
}
