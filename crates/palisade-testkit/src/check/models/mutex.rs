use super::lock::{LockStep, Who};
use crate::check::linear::{Haste, Model};

/// Free or taken.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mutex;

/// Free or taken by someone, and only that one gives it back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OwnerMutex;

/// An [`OwnerMutex`] in which every token is greater than all before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FencedMutex;

impl Model for Mutex {
    type State = bool;
    type Step = LockStep;

    fn initial(&self) -> bool {
        false
    }

    fn apply(&self, taken: &bool, step: &LockStep) -> Option<bool> {
        match step {
            LockStep::Acquire { .. } => (!taken).then_some(true),
            LockStep::Release { .. } => taken.then_some(false),
        }
    }

    fn haste(&self, _: &LockStep) -> Haste {
        // Any release frees whoever holds: which one comes first is a choice.
        Haste::None
    }

    fn state_in_words(&self, taken: &bool) -> String {
        if *taken { "taken" } else { "free" }.to_owned()
    }

    fn step_in_words(&self, step: &LockStep) -> (String, String) {
        step.in_words()
    }
}

impl Model for OwnerMutex {
    type State = Option<Who>;
    type Step = LockStep;

    fn initial(&self) -> Option<Who> {
        None
    }

    fn apply(&self, owner: &Option<Who>, step: &LockStep) -> Option<Option<Who>> {
        match step {
            LockStep::Acquire { who, .. } => owner.is_none().then_some(Some(*who)),
            LockStep::Release { who, .. } => (*owner == Some(*who)).then_some(None),
        }
    }

    fn haste(&self, step: &LockStep) -> Haste {
        step.haste()
    }

    fn state_in_words(&self, owner: &Option<Who>) -> String {
        owner.map_or_else(|| "free".to_owned(), |who| format!("held by {who}"))
    }

    fn step_in_words(&self, step: &LockStep) -> (String, String) {
        step.in_words()
    }
}

impl Model for FencedMutex {
    /// The owner, and the greatest token so far.
    type State = (Option<Who>, u64);
    type Step = LockStep;

    fn initial(&self) -> Self::State {
        (None, 0)
    }

    fn apply(&self, (owner, greatest): &Self::State, step: &LockStep) -> Option<Self::State> {
        let owner = OwnerMutex.apply(owner, step)?;
        match step {
            // A grant whose token is not known has some token.
            LockStep::Acquire { token: Some(token), .. } => (token > greatest).then_some((owner, *token)),
            _ => Some((owner, *greatest)),
        }
    }

    fn is_too_late(&self, (_, greatest): &Self::State, step: &LockStep) -> bool {
        matches!(step, LockStep::Acquire { token: Some(token), .. } if token <= greatest)
    }

    fn haste(&self, step: &LockStep) -> Haste {
        step.haste()
    }

    fn state_in_words(&self, (owner, greatest): &Self::State) -> String {
        format!("{}, greatest token {greatest}", OwnerMutex.state_in_words(owner))
    }

    fn step_in_words(&self, step: &LockStep) -> (String, String) {
        step.in_words()
    }
}
