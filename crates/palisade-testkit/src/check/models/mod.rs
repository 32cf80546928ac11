//! What locks and registers do, one operation after the other: models for the linearizability
//! search.

mod kv;
mod lock;
mod mutex;
mod permits;
mod register;
mod rw;
mod versioned;

pub(crate) use self::kv::Kv;
pub(crate) use self::lock::{LockStep, from_holds, from_records};
pub(crate) use self::mutex::{FencedMutex, Mutex, OwnerMutex};
pub(crate) use self::permits::Permits;
pub(crate) use self::register::Register;
pub(crate) use self::rw::Rw;
pub(crate) use self::versioned::Versioned;
use super::linear::Timed;
use crate::history::Op;

/// `step` with the times of `op`. What was answered "unknown" has no end.
fn timed<S>(op: &Op, step: S) -> Timed<S> {
    let ret = if op.is_unknown() { None } else { op.end };
    Timed { id: op.id, process: op.process, call: op.start, ret, step }
}

/// A value, for people.
fn shown(value: Option<&str>) -> String {
    const LONGEST: usize = 40;
    let Some(value) = value else { return "no value".to_owned() };
    let count = value.chars().count();
    if count <= LONGEST {
        return format!("{value:?}");
    }
    // What was appended last tells more than what was there long ago.
    let tail: String = value.chars().skip(count - LONGEST).collect();
    format!("…{tail:?} ({count} characters)")
}

/// An answer, or that there is none.
fn answer(text: &str, answered: bool) -> String {
    if answered { text.to_owned() } else { "unknown".to_owned() }
}
