use super::Violation;
use crate::history::{History, Nanos};

/// From when on holders may overlap, because a fault broke what the engine's mutual exclusion rests
/// on. Whatever goes through the fence must hold all the same.
#[derive(Debug)]
pub(super) struct Exclusion {
    /// `None` if it must hold throughout.
    voided: Option<(Nanos, String)>,
}

impl Exclusion {
    pub(super) fn of(history: &History) -> Self {
        let reason = |fault| history.begin.as_ref()?.voids_exclusion.get(fault);
        let voided = history.faults.iter().find_map(|fault| Some((fault.from, reason(&fault.kind)?.clone())));
        Self { voided }
    }

    /// Whether it must hold throughout.
    pub(super) fn holds(&self) -> bool {
        self.voided.is_none()
    }

    /// Why it need not.
    pub(super) fn reason(&self) -> Option<String> {
        self.voided.as_ref().map(|(_, why)| why.clone())
    }

    /// Tells what must never be, among what shows that exclusion failed, from what was bound to be.
    pub(super) fn judge(&self, found: Vec<Violation>) -> (Vec<Violation>, Vec<Violation>) {
        let before =
            |violation: &Violation| self.voided.as_ref().is_none_or(|(from, _)| violation.at < *from);
        found.into_iter().partition(before)
    }
}
