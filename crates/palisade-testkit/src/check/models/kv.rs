use super::{answer, shown, timed};
use crate::check::linear::{Haste, Model, Timed};
use crate::history::{Answer, Call, Op};

/// One key of a store that is read, written and appended to. It begins empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kv<'h> {
    /// All values that were read, sorted.
    seen: Vec<&'h str>,
    /// Whether anyone put a value, after which it no longer begins as it did.
    puts: bool,
}

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
    /// The model of a key with these operations.
    pub(crate) fn of(ops: &[&'h Op]) -> Self {
        let mut seen: Vec<&str> = ops
            .iter()
            .filter_map(|op| match &op.answer {
                Answer::Value { value, .. } => value.as_deref(),
                _ => None,
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        let puts = ops.iter().any(|op| matches!(op.call, Call::Write { .. }));
        Self { seen, puts }
    }

    /// Whether a step in doubt that leads to `state` could matter. If nobody read anything that
    /// begins so, the next read comes after a put, and all is as if the step had not been.
    fn matters(&self, state: &str) -> bool {
        let place = self.seen.partition_point(|seen| *seen < state);
        self.seen.get(place).is_some_and(|seen| seen.starts_with(state))
    }

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
            KvStep::Put { value, answered } => (answered || self.matters(value)).then(|| value.to_owned()),
            KvStep::Append { value, answered } => {
                Some([state, value].concat()).filter(|after| answered || self.matters(after))
            }
        }
    }

    fn is_too_late(&self, state: &String, step: &Self::Step) -> bool {
        matches!(step, KvStep::Get(value) if !self.puts && !value.starts_with(state.as_str()))
    }

    fn haste(&self, step: &Self::Step) -> Haste {
        let reads = matches!(step, KvStep::Get(_));
        if reads { Haste::Read } else { Haste::None }
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
