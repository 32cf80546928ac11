use std::marker::PhantomData;

use super::{answer, shown, timed};
use crate::check::linear::{Model, Timed};
use crate::history::{Answer, Call, Op};

/// One key of a store that is read, written and appended to. It begins empty.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kv<'h>(PhantomData<&'h str>);

/// A step of a [`Kv`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum KvStep<'h> {
    /// It was read. No value and an empty one are the same.
    Get(&'h str),
    /// It was written, or may have been.
    Put { value: &'h str, answered: bool },
    /// It was appended to, or may have been.
    Append { value: &'h str, answered: bool },
}

impl<'h> Kv<'h> {
    /// The steps among `ops`.
    pub(crate) fn steps(ops: &[&'h Op]) -> Vec<Timed<KvStep<'h>>> {
        ops.iter().filter_map(|op| Some(timed(op, step(op)?))).collect()
    }
}

fn step(op: &Op) -> Option<KvStep<'_>> {
    if op.had_no_effect() || matches!(op.answer, Answer::Refused { .. }) {
        return None;
    }
    let answered = !op.is_unknown();
    match (&op.call, &op.answer) {
        (Call::Read, Answer::Value { value, .. }) => Some(KvStep::Get(value.as_deref().unwrap_or_default())),
        (Call::Write { value, .. }, _) => Some(KvStep::Put { value, answered }),
        (Call::Append { value }, _) => Some(KvStep::Append { value, answered }),
        _ => None,
    }
}

impl<'h> Model for Kv<'h> {
    type State = String;
    type Step = KvStep<'h>;

    fn initial(&self) -> String {
        String::new()
    }

    fn apply(&self, state: &String, step: &Self::Step) -> Option<String> {
        match *step {
            KvStep::Get(value) => (state == value).then(|| state.clone()),
            KvStep::Put { value, .. } => Some(value.to_owned()),
            KvStep::Append { value, .. } => Some([state, value].concat()),
        }
    }

    fn state_in_words(&self, state: &String) -> String {
        shown(Some(state))
    }

    fn step_in_words(&self, step: &Self::Step) -> (String, String) {
        match *step {
            KvStep::Get(value) => ("get".to_owned(), shown(Some(value))),
            KvStep::Put { value, answered } => {
                (format!("put {}", shown(Some(value))), answer("done", answered))
            }
            KvStep::Append { value, answered } => {
                (format!("append {}", shown(Some(value))), answer("done", answered))
            }
        }
    }
}
