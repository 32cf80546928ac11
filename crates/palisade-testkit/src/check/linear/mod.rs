//! Linearizability: is there an order of the operations, each at one moment between its call and
//! its answer, in which every answer is right?
//!
//! The search is that of Wing, Gong and Lowe, as porcupine does it, with three differences: the set
//! of operations that have been ordered is remembered as a hash that grows with it, so that memory
//! is linear in the history; reads and releases are ordered at once, without a choice; and a
//! configuration is given up if one that had more doubtful operations left was.

mod chain;
mod hash;
mod part;
mod search;

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

pub use self::part::{Part, Row};
use self::search::{End, Search};
use crate::history::{Nanos, OpId, ProcessId};

/// What a thing does, one operation after the other.
pub trait Model {
    /// All that counts for what comes after.
    type State: Clone + Eq + Hash;
    /// What is asked, together with what was answered.
    type Step: Clone;

    /// How it begins.
    fn initial(&self) -> Self::State;

    /// What comes of a step; `None` if it cannot be answered in this state as it was. A step
    /// without an answer is one that can take effect now.
    fn apply(&self, state: &Self::State, step: &Self::Step) -> Option<Self::State>;

    /// Whether a step need not wait for others.
    fn haste(&self, step: &Self::Step) -> Haste;

    /// Whether a step is possible neither in this state nor in any that can follow. May say no
    /// when in doubt.
    fn is_too_late(&self, state: &Self::State, step: &Self::Step) -> bool {
        let _ = (state, step);
        false
    }

    /// A state, in words.
    fn state_in_words(&self, state: &Self::State) -> String;

    /// What was asked and what was answered, in words.
    fn step_in_words(&self, step: &Self::Step) -> (String, String);
}

/// Whether a step, once possible, may as well come next: whatever else could, can come after it just
/// as well. Then there is nothing to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// It may not.
    None,
    /// It changes no state, so it may. (One that is told what nobody knew before does change what is
    /// known, and may not.)
    Read,
    /// It may: it only makes room, and nothing else can make that room.
    Leave,
}

/// A step with its times.
#[derive(Debug, Clone)]
pub struct Timed<S> {
    /// The operation it stands for.
    pub id: OpId,
    /// Who asked.
    pub process: ProcessId,
    /// It had no effect before this.
    pub call: Nanos,
    /// It had its effect by then; `None` if nobody knows whether it ever had.
    pub ret: Option<Nanos>,
    /// The step.
    pub step: S,
}

/// What a search may cost.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Time.
    pub time: Duration,
    /// How many configurations are remembered, about a hundred bytes each.
    pub configurations: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { time: Duration::from_mins(1), configurations: 20_000_000 }
    }
}

/// What came of a search.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// There is such an order.
    Linearizable,
    /// There is none.
    Violated(Part),
    /// The budget ran out before one was found or all were tried; why, in words.
    Undecided(String),
}

/// What came of a search, and what it took.
#[derive(Debug, Clone)]
pub struct Searched {
    /// What came of it.
    pub outcome: Outcome,
    /// How many times an operation was put next.
    pub steps: u64,
}

/// Searches for an order of `ops`.
pub fn search<M: Model>(model: &M, ops: &[Timed<M::Step>], budget: Budget) -> Searched {
    let mut search = Search::new(model, ops, budget);
    let end = search.run(|_| {});
    let steps = search.steps();
    let outcome = match end {
        End::Ordered => Outcome::Linearizable,
        End::Exhausted { due } => Outcome::Violated(part::smallest(model, ops, due, budget)),
        End::OutOfBudget { why } => Outcome::Undecided(why),
    };
    Searched { outcome, steps }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linearizable => f.write_str("linearizable"),
            Self::Violated(part) => part.fmt(f),
            Self::Undecided(why) => write!(f, "undecided: {why}"),
        }
    }
}
