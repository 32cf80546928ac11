//! Checkers: what a [`History`](crate::history::History) must show if the locks are right.

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
