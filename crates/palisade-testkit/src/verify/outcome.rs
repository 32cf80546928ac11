use std::time::Duration;

use std::fmt;

use anyhow::Result;
use serde_json::{Value, json};

use super::settings::Settings;
use crate::check::Violation;
use crate::history::{FaultKind, History};

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What happened.
    pub history: History,
    /// What must never be, and was.
    pub violations: Vec<Violation>,
    /// For how long workers worked.
    pub ran: Duration,
}

/// In one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was violated, and everything could be decided.
    Passed,
    /// Something was violated.
    Violated,
    /// Something could not be decided.
    Undecided,
}

impl Outcome {
    pub(super) fn judge(
        _settings: &Settings,
        _engine: &str,
        _faults: &[FaultKind],
        history: History,
        violations: Vec<Violation>,
        ran: Duration,
    ) -> Result<Self> {
        Ok(Self { history, violations, ran })
    }
}

impl Outcome {
    /// In one word.
    pub fn verdict(&self) -> Verdict {
        if self.violations.is_empty() { Verdict::Passed } else { Verdict::Violated }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "ops": self.history.answered(), "violations": self.violations })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} ops in {:?}: {:?}",
            self.verdict(),
            self.history.answered(),
            self.ran,
            self.violations
        )
    }
}
