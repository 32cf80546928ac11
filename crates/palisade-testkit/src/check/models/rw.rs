use super::lock::{LockStep, Who};
use crate::check::linear::{Haste, Model};
use crate::history::HoldMode;

/// Many readers, or one writer. Of two grants that exclude each other the later one has the
/// greater token.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rw;

/// Who is in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct RwState {
    writer: Option<Who>,
    /// Sorted, so that the order in which they came makes no difference.
    readers: Vec<Who>,
    /// The greatest token of a writer so far.
    written: u64,
    /// The greatest token of anyone so far.
    greatest: u64,
}

impl RwState {
    /// A new token is greater than this.
    fn floor(&self, mode: HoldMode) -> u64 {
        if mode == HoldMode::Shared { self.written } else { self.greatest }
    }

    fn enter(&self, who: Who, mode: HoldMode, token: Option<u64>) -> Option<Self> {
        let shared = mode == HoldMode::Shared;
        if self.writer.is_some() || (!shared && !self.readers.is_empty()) {
            return None;
        }
        if token.is_some_and(|token| token <= self.floor(mode)) {
            return None;
        }
        let mut after = self.clone();
        after.greatest = self.greatest.max(token.unwrap_or(0));
        if shared {
            let place = after.readers.partition_point(|reader| *reader < who);
            after.readers.insert(place, who);
        } else {
            after.written = self.written.max(token.unwrap_or(0));
            after.writer = Some(who);
        }
        Some(after)
    }

    fn leave(&self, who: Who) -> Option<Self> {
        let mut after = self.clone();
        if self.writer == Some(who) {
            after.writer = None;
        } else {
            after.readers.remove(self.readers.binary_search(&who).ok()?);
        }
        Some(after)
    }
}

impl Model for Rw {
    type State = RwState;
    type Step = LockStep;

    fn initial(&self) -> RwState {
        RwState::default()
    }

    fn apply(&self, state: &RwState, step: &LockStep) -> Option<RwState> {
        match *step {
            LockStep::Acquire { who, mode, token, .. } => state.enter(who, mode, token),
            LockStep::Release { who, .. } => state.leave(who),
        }
    }

    fn is_too_late(&self, state: &RwState, step: &LockStep) -> bool {
        match *step {
            LockStep::Acquire { mode, token: Some(token), .. } => token <= state.floor(mode),
            _ => false,
        }
    }

    fn haste(&self, step: &LockStep) -> Haste {
        step.haste()
    }

    fn state_in_words(&self, state: &RwState) -> String {
        let readers: Vec<String> = state.readers.iter().map(ToString::to_string).collect();
        let who = match (&state.writer, readers.is_empty()) {
            (Some(writer), _) => format!("written by {writer}"),
            (None, true) => "free".to_owned(),
            (None, false) => format!("read by {}", readers.join(", ")),
        };
        format!("{who}, greatest token {} (of writers {})", state.greatest, state.written)
    }

    fn step_in_words(&self, step: &LockStep) -> (String, String) {
        step.in_words()
    }
}
