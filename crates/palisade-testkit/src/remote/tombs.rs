use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use palisade_core::{BootInstant, ClaimId};

/// The claims that were withdrawn lately.
///
/// A claim may still be on its way over an old connection while its withdrawal comes over a new
/// one. It must not be let in afterwards: nobody would renew it, and nobody would give it back.
#[derive(Debug, Default)]
pub(super) struct Tombs {
    ids: HashSet<ClaimId>,
    /// In the order of their burial.
    order: VecDeque<(BootInstant, ClaimId)>,
}

impl Tombs {
    /// Longer than any network holds on to a connection that nobody uses.
    const KEPT: Duration = Duration::from_mins(10);
    /// At most so many, the oldest are forgotten first.
    const MOST: usize = 1 << 20;

    pub(super) fn bury(&mut self, id: ClaimId, now: BootInstant) {
        while let Some((since, oldest)) = self.order.front().copied()
            && (self.order.len() >= Self::MOST || now.saturating_since(since) > Self::KEPT)
        {
            self.order.pop_front();
            self.ids.remove(&oldest);
        }
        if self.ids.insert(id) {
            self.order.push_back((now, id));
        }
    }

    pub(super) fn holds(&self, id: ClaimId) -> bool {
        self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Clock, ManualClock};

    use super::*;

    #[test]
    fn tombs_are_kept_for_a_while_and_not_for_ever() {
        let (clock, mut tombs) = (ManualClock::new(), Tombs::default());
        let (first, second) = (ClaimId::random(), ClaimId::random());
        tombs.bury(first, clock.now());
        tombs.bury(first, clock.now());
        clock.advance(Tombs::KEPT);
        tombs.bury(second, clock.now());
        assert!(tombs.holds(first) && tombs.holds(second));
        clock.advance(Duration::from_secs(1));
        tombs.bury(ClaimId::random(), clock.now());
        assert!(!tombs.holds(first) && tombs.holds(second));
    }
}
