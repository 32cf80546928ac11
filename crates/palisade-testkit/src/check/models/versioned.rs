use std::collections::HashSet;
use std::marker::PhantomData;

use palisade_core::Token;

use super::{answer, shown, timed};
use crate::check::linear::{Haste, Model, Timed};
use crate::history::{Answer, Call, Op};

/// A register whose version rises with every write, and which may be fenced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Versioned<'h> {
    /// Whether tokens of accepted writes must not fall. They may where the lock is shared or has
    /// slots, which have a fence each.
    pub(crate) fenced: bool,
    /// The history it speaks of.
    pub(crate) history: PhantomData<&'h str>,
}

/// A step of a [`Versioned`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum VersionedStep<'h> {
    /// It was read.
    Read { value: Option<&'h str>, version: Option<u64> },
    /// It was written, or may have been.
    Write {
        value: &'h str,
        /// Only if this version was there.
        expected: Option<u64>,
        token: Option<u64>,
        /// The version that it made.
        made: Option<u64>,
        answered: bool,
    },
    /// It was not written, because this version was there, or because a later holder had been.
    Refused { value: &'h str, expected: Option<u64>, found: Option<u64>, stale: bool },
}

/// What is known of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Version {
    /// It is this.
    Is(u64),
    /// A write that nobody heard of made it: it is this or greater.
    AtLeast(u64),
}

impl Version {
    /// What is known after `seen` was seen; `None` if that cannot be. What was not seen changes
    /// nothing.
    fn seen(self, seen: Option<u64>) -> Option<Self> {
        let Some(seen) = seen else { return Some(self) };
        let fits = match self {
            Self::Is(version) => version == seen,
            Self::AtLeast(least) => least <= seen,
        };
        fits.then_some(Self::Is(seen))
    }

    /// What is known after a write that made `made`.
    fn written(self, made: Option<u64>) -> Option<Self> {
        let (Self::Is(least) | Self::AtLeast(least)) = self;
        let next = least.saturating_add(1);
        match made {
            Some(made) => (made >= next).then_some(Self::Is(made)),
            None => Some(Self::AtLeast(next)),
        }
    }
}

/// What a [`Versioned`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct VersionedState<'h> {
    value: Option<&'h str>,
    version: Version,
    /// The greatest token of a write so far.
    fence: u64,
}

impl<'h> Versioned<'h> {
    /// The steps among `ops`, without those in doubt that nobody can have noticed.
    pub(crate) fn steps(ops: &[&'h Op]) -> Vec<Timed<VersionedStep<'h>>> {
        let mut steps: Vec<_> = ops.iter().filter_map(|op| Some(timed(op, step(op)?))).collect();
        let noticed = Noticed::of(&steps);
        steps.retain(|timed| match timed.step {
            VersionedStep::Write { value, answered: false, .. } => {
                noticed.nameless || noticed.values.contains(value)
            }
            _ => true,
        });
        steps
    }
}

/// By what a write in doubt is noticed.
#[derive(Debug, Default)]
struct Noticed<'h> {
    /// The values that were read.
    values: HashSet<&'h str>,
    /// Whether anyone met a version that no answered write made, or may have.
    nameless: bool,
}

impl<'h> Noticed<'h> {
    fn of(steps: &[Timed<VersionedStep<'h>>]) -> Self {
        let made = steps.iter().filter_map(|timed| match timed.step {
            VersionedStep::Write { made, .. } => made,
            _ => None,
        });
        let made: HashSet<u64> = made.chain([0]).collect();
        let mut noticed = Self::default();
        for timed in steps {
            let nameless = |version: Option<u64>| version.is_some_and(|version| !made.contains(&version));
            match timed.step {
                // Whose version it was shows by its value.
                VersionedStep::Read { value, .. } => noticed.values.extend(value),
                VersionedStep::Write { expected, .. } => noticed.nameless |= nameless(expected),
                VersionedStep::Refused { expected, found, .. } => {
                    noticed.nameless |= nameless(expected) || nameless(found) || found.is_none();
                }
            }
        }
        noticed
    }
}

fn step(op: &Op) -> Option<VersionedStep<'_>> {
    match (&op.call, &op.answer) {
        (_, Answer::Failed { .. }) => None,
        // That opening raises the fence is for the sweep over fenced writes.
        (Call::Read | Call::Open { .. }, Answer::Value { value, version }) => {
            Some(VersionedStep::Read { value: value.as_deref(), version: *version })
        }
        (Call::Write { value, version: expected, .. }, Answer::Refused { version: found, stale }) => {
            Some(VersionedStep::Refused { value, expected: *expected, found: *found, stale: *stale })
        }
        (Call::Write { value, version: expected, token }, found) => {
            let made = if let Answer::Done { version } = found { *version } else { None };
            let (token, answered) = (token.map(Token::get), !op.is_unknown());
            Some(VersionedStep::Write { value, expected: *expected, token, made, answered })
        }
        _ => None,
    }
}

impl<'h> Model for Versioned<'h> {
    type State = VersionedState<'h>;
    type Step = VersionedStep<'h>;

    fn initial(&self) -> Self::State {
        VersionedState { value: None, version: Version::Is(0), fence: 0 }
    }

    fn apply(&self, state: &Self::State, step: &Self::Step) -> Option<Self::State> {
        match *step {
            VersionedStep::Read { value, version } => {
                let version = (state.value == value).then_some(state.version)?.seen(version)?;
                Some(VersionedState { version, ..*state })
            }
            VersionedStep::Write { value, expected, token, made, .. } => {
                let token = token.unwrap_or(state.fence);
                if self.fenced && token < state.fence {
                    return None;
                }
                let version = state.version.seen(expected)?.written(made)?;
                Some(VersionedState { value: Some(value), version, fence: state.fence.max(token) })
            }
            VersionedStep::Refused { expected, found, stale, .. } => {
                // Why a fence refused cannot be judged here: reads raise it too.
                let version = state.version.seen(found)?;
                // A write without a condition can be refused by a fence only.
                let unlike = expected.is_some_and(|expected| version != Version::Is(expected));
                (stale || unlike).then_some(VersionedState { version, ..*state })
            }
        }
    }

    fn is_too_late(&self, state: &Self::State, step: &Self::Step) -> bool {
        let (Version::Is(least) | Version::AtLeast(least)) = state.version;
        match *step {
            VersionedStep::Read { version: Some(seen), .. }
            | VersionedStep::Refused { found: Some(seen), .. } => seen < least,
            VersionedStep::Write { made: Some(made), .. } => made <= least,
            _ => false,
        }
    }

    fn haste(&self, step: &Self::Step) -> Haste {
        let reads = matches!(step, VersionedStep::Read { .. } | VersionedStep::Refused { .. });
        if reads { Haste::Read } else { Haste::None }
    }

    fn state_in_words(&self, state: &Self::State) -> String {
        let version = match state.version {
            Version::Is(version) => format!("version {version}"),
            Version::AtLeast(least) => format!("version {least} or later"),
        };
        format!("{}, {version}, fence {}", shown(state.value), state.fence)
    }

    fn step_in_words(&self, step: &Self::Step) -> (String, String) {
        let version = |version: Option<u64>| version.map(|v| format!(", version {v}")).unwrap_or_default();
        let write = |value, expected: Option<u64>| {
            let only = expected.map(|v| format!(" over version {v}")).unwrap_or_default();
            format!("write {}{only}", shown(Some(value)))
        };
        match *step {
            VersionedStep::Read { value, version: seen } => {
                ("read".to_owned(), format!("{}{}", shown(value), version(seen)))
            }
            VersionedStep::Write { value, expected, token, made, answered } => {
                let token = token.map(|token| format!(" with token {token}")).unwrap_or_default();
                let asked = format!("{}{token}", write(value, expected));
                (asked, answer(&format!("done{}", version(made)), answered))
            }
            VersionedStep::Refused { value, expected, found, stale } => {
                let why = if stale { "refused as stale" } else { "refused" };
                (write(value, expected), format!("{why}{}", version(found)))
            }
        }
    }
}
