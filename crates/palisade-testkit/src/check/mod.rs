//! Checkers: what a [`History`] must show if the locks are right.
//!
//! | checker | what must never be |
//! |---|---|
//! | `tokens` | a token twice, or one that falls where it must rise (I1) |
//! | `belief` | two who exclude each other and both believe that they hold (I2, I5) |
//! | `fenced` | a stale write accepted, an acknowledged one overwritten unseen or not read (I3) |
//! | `lost` | an acknowledged addition that is missing at the end |
//! | `stolen` | a hold that somebody other than its owner ended (I4) |
//! | `progress` | somebody waits, nobody holds, nothing disturbs, and nothing happens (I6) |
//! | `linear` | answers that no order of the operations explains |
//!
//! Where a fault breaks what an engine's exclusion rests on ([`Begin::voids_exclusion`]), what only
//! shows that holders overlapped is counted apart, as [`Findings::overlaps`].
//!
//! [`Begin::voids_exclusion`]: crate::history::Begin::voids_exclusion
//!
//! [`all`] runs them over a history; [`file::check_file`] holds a saved one to a single model.

mod all;
mod belief;
mod exclusion;
mod fenced;
pub mod file;
mod kind;
pub mod linear;
mod lost;
mod models;
mod order;
mod progress;
mod stolen;
mod tokens;

use std::collections::HashSet;

pub use self::all::{Bounds, Findings, Spread, all};
pub use self::kind::ModelKind;
use crate::history::{Call, History, Hold, HoldMode, Nanos, Op, OpId};

/// Something that must never be, and was.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Which checker found it, such as `belief` or `tokens`.
    pub checker: &'static str,
    /// On which key.
    pub key: String,
    /// When it showed.
    pub at: Nanos,
    /// What is wrong, in one sentence for a person.
    pub what: String,
    /// The operations that show it.
    pub ops: Vec<OpId>,
}

/// Something that could not be decided, which counts as a failure.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Undecided {
    /// Which checker gave up.
    pub checker: &'static str,
    /// On which key.
    pub key: String,
    /// Why.
    pub why: String,
}

/// The register that a lock guards in a run of the harness.
pub fn register_of(lock: &str) -> String {
    format!("{lock}{DATA}")
}

/// The lock that guards a register, if it is named like one that has one.
pub fn lock_of(register: &str) -> Option<&str> {
    register.strip_suffix(DATA)
}

/// What a register's name has behind that of its lock.
const DATA: &str = "#data";

/// Whether two grants cannot be held at one time. That there are too many slots at once is no matter
/// of two.
pub(crate) fn excludes(one: &Hold, other: &Hold) -> bool {
    match (one.mode, other.mode) {
        (HoldMode::Shared, HoldMode::Shared) => false,
        (HoldMode::Slot(_), HoldMode::Slot(_)) => one.slot.is_some() && one.slot == other.slot,
        _ => true,
    }
}

/// The locks that are shared or have slots: writes to the registers that they guard have more than
/// one fence, so that tokens may fall.
fn without_one_fence(history: &History) -> HashSet<&str> {
    let apart = |op: &&Op| matches!(op.call, Call::Acquire { mode: HoldMode::Shared | HoldMode::Slot(_) });
    history.ops.iter().filter(apart).map(|op| &*op.key).collect()
}

#[cfg(test)]
mod tests;
