use std::fmt;

use super::{answer, timed};
use crate::check::linear::{Haste, Timed};
use crate::history::{Answer, Call, Hold, HoldMode, Nanos, Op, OpId, ProcessId};

/// Who holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Who {
    /// Whoever got it by this operation: where one knows which grant a release gives back.
    By(OpId),
    /// This process: where one does not.
    Process(ProcessId),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(op) => write!(f, "operation {op}"),
            Self::Process(process) => write!(f, "process {process}"),
        }
    }
}

/// What happens to a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockStep {
    /// It was taken, or may have been.
    Acquire { who: Who, mode: HoldMode, token: Option<u64>, slot: Option<u32>, answered: bool },
    /// It was given back, or was lost, or may have been.
    Release { who: Who, answered: bool },
}

/// The steps of grants whose holders' belief is known.
///
/// A grant is over some time after its holder stopped believing in it: that is when the step that
/// gives it back is called. It ends when its release was answered, or never: then an engine may
/// have let it run out at any time, and a holder that was killed or stopped is no riddle.
pub(crate) fn from_holds(holds: &[&Hold]) -> Vec<Timed<LockStep>> {
    let mut steps = Vec::with_capacity(holds.len() * 2);
    for hold in holds {
        let who = Who::By(hold.op);
        let timed = |call, ret, step| Timed { id: hold.op, process: hold.process, call, ret, step };
        let token = hold.token.map(palisade_core::Token::get);
        let acquire = LockStep::Acquire { who, mode: hold.mode, token, slot: hold.slot, answered: true };
        steps.push(timed(hold.asked, Some(hold.from), acquire));
        if hold.until < Nanos::MAX {
            let release = LockStep::Release { who, answered: hold.released.is_some() };
            steps.push(timed(hold.until, hold.released, release));
        }
    }
    steps
}

/// The steps of a history that says who asked and what was answered, no more.
pub(crate) fn from_records(ops: &[&Op]) -> Vec<Timed<LockStep>> {
    ops.iter().filter_map(|op| Some(timed(op, recorded(op)?))).collect()
}

fn recorded(op: &Op) -> Option<LockStep> {
    let who = Who::Process(op.process);
    match (&op.call, &op.answer) {
        (_, Answer::Failed { .. } | Answer::Refused { .. }) => None,
        (Call::Acquire { mode }, Answer::Granted { token, slot, .. }) => {
            let token = token.map(palisade_core::Token::get);
            Some(LockStep::Acquire { who, mode: *mode, token, slot: *slot, answered: true })
        }
        (Call::Acquire { mode }, _) => {
            Some(LockStep::Acquire { who, mode: *mode, token: None, slot: None, answered: !op.is_unknown() })
        }
        (Call::Release { .. }, _) => Some(LockStep::Release { who, answered: !op.is_unknown() }),
        _ => None,
    }
}

impl LockStep {
    /// Whether it may as well come next, in models that know who holds: the end of one grant, which
    /// nothing else ends, only makes room. A process may have more than one release on its way.
    pub(crate) const fn haste(&self) -> Haste {
        match self {
            Self::Release { who: Who::By(_), .. } => Haste::Leave,
            _ => Haste::None,
        }
    }

    /// What was asked and answered.
    pub(crate) fn in_words(&self) -> (String, String) {
        match self {
            Self::Acquire { mode, token, slot, answered, .. } => {
                let asked = match mode {
                    HoldMode::Exclusive => "acquire".to_owned(),
                    HoldMode::Shared => "acquire shared".to_owned(),
                    HoldMode::Slot(of) => format!("acquire one of {of}"),
                };
                let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
                let slot = slot.map(|slot| format!(", slot {slot}")).unwrap_or_default();
                (asked, answer(&format!("granted{token}{slot}"), *answered))
            }
            Self::Release { who: Who::By(op), answered } => {
                (format!("end of operation {op}"), answer("over", *answered))
            }
            Self::Release { answered, .. } => ("release".to_owned(), answer("released", *answered)),
        }
    }
}
