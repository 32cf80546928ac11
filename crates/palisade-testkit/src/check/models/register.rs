use std::marker::PhantomData;

use super::{answer, shown, timed};
use crate::check::linear::{Haste, Model, Timed};
use crate::history::{Answer, Call, Op};

/// A register that is read, written, and replaced on condition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Register<'h>(PhantomData<&'h str>);

/// A step of a [`Register`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum RegisterStep<'h> {
    /// It was read; `None` is no value.
    Read(Option<&'h str>),
    /// It was written, or may have been.
    Write { value: &'h str, answered: bool },
    /// It was replaced, or was not because something else was there, or may have been.
    Cas { from: &'h str, to: &'h str, done: Option<bool> },
}

impl<'h> Register<'h> {
    /// The steps among `ops`.
    pub(crate) fn steps(ops: &[&'h Op]) -> Vec<Timed<RegisterStep<'h>>> {
        ops.iter().filter_map(|op| Some(timed(op, step(op)?))).collect()
    }
}

fn step(op: &Op) -> Option<RegisterStep<'_>> {
    if op.had_no_effect() {
        return None;
    }
    let answered = !op.is_unknown();
    match (&op.call, &op.answer) {
        (Call::Read, Answer::Value { value, .. }) => Some(RegisterStep::Read(value.as_deref())),
        // A condition that this model knows nothing of kept it out.
        (Call::Write { .. }, Answer::Refused { .. }) => None,
        (Call::Write { value, .. }, _) => Some(RegisterStep::Write { value, answered }),
        (Call::Cas { from, to }, found) => {
            let done = answered.then_some(!matches!(found, Answer::Refused { .. }));
            Some(RegisterStep::Cas { from, to, done })
        }
        _ => None,
    }
}

impl<'h> Model for Register<'h> {
    type State = Option<&'h str>;
    type Step = RegisterStep<'h>;

    fn initial(&self) -> Self::State {
        None
    }

    fn apply(&self, state: &Self::State, step: &Self::Step) -> Option<Self::State> {
        match *step {
            RegisterStep::Read(value) => (*state == value).then_some(value),
            RegisterStep::Write { value, .. } => Some(Some(value)),
            RegisterStep::Cas { from, to, done } => match (*state == Some(from), done) {
                (true, Some(true) | None) => Some(Some(to)),
                (false, Some(false)) => Some(*state),
                _ => None,
            },
        }
    }

    fn haste(&self, step: &Self::Step) -> Haste {
        let reads = matches!(step, RegisterStep::Read(_) | RegisterStep::Cas { done: Some(false), .. });
        if reads { Haste::Read } else { Haste::None }
    }

    fn state_in_words(&self, state: &Self::State) -> String {
        shown(*state)
    }

    fn step_in_words(&self, step: &Self::Step) -> (String, String) {
        match *step {
            RegisterStep::Read(value) => ("read".to_owned(), shown(value)),
            RegisterStep::Write { value, answered } => {
                (format!("write {}", shown(Some(value))), answer("done", answered))
            }
            RegisterStep::Cas { from, to, done } => (
                format!("replace {} by {}", shown(Some(from)), shown(Some(to))),
                answer(if done == Some(true) { "done" } else { "refused" }, done.is_some()),
            ),
        }
    }
}
