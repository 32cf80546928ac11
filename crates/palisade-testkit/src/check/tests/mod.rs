//! A checker is trusted because it agrees with labels, flags what was broken on purpose, and passes
//! what is clean.

mod brute;
mod file;
mod labels;
mod linear;
mod locks;
mod mutate;
mod random;
mod registers;
mod script;
mod size;
mod sweeps;

use std::time::Duration;

use super::ModelKind;
use super::kind::Subject;
use super::linear::{Budget, Searched};
use crate::history::{History, Hold, Op};

fn budget() -> Budget {
    Budget { time: Duration::from_secs(30), ..Budget::default() }
}

/// Holds a history of one key to a model.
fn searched(history: &History, kind: ModelKind) -> Searched {
    let ops: Vec<&Op> = history.ops.iter().collect();
    let holds = history.holds();
    let holds: Vec<&Hold> = holds.iter().collect();
    let subject = Subject { ops: &ops, holds: Some(&holds), fenced: true };
    subject.judge(kind, budget()).unwrap().1
}
