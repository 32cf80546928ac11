//! Checkers: what a [`History`](crate::history::History) must show if the locks are right.

pub mod file;
mod kind;
pub mod linear;
mod models;

pub use self::kind::ModelKind;
use crate::history::{Nanos, OpId};

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

/// Whether the tokens of writes to a register must not fall: unless its lock is shared or has
/// slots.
fn is_fenced(history: &crate::history::History, register: &str) -> bool {
    use crate::history::{Call, HoldMode};
    let lock = lock_of(register);
    !history.ops.iter().any(|op| {
        Some(&*op.key) == lock
            && matches!(op.call, Call::Acquire { mode: HoldMode::Shared | HoldMode::Slot(_) })
    })
}

#[cfg(test)]
mod tests;
