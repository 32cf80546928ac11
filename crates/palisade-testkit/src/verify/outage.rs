use std::collections::BTreeMap;

use tokio::time::Instant;

/// The servers that cannot be counted on, never more than an engine outlives.
#[derive(Debug)]
pub(super) struct Outage {
    at_once: usize,
    /// Until when, for those that are healed.
    out: BTreeMap<usize, Option<Instant>>,
}

impl Outage {
    pub(super) fn new(at_once: usize) -> Self {
        Self { at_once, out: BTreeMap::new() }
    }

    /// Counts `server` as struck; false if it is already, or if too many are.
    pub(super) fn strike(&mut self, server: usize, now: Instant) -> bool {
        self.out.retain(|_, until| until.is_none_or(|until| until > now));
        let may = self.out.len() < self.at_once && !self.out.contains_key(&server);
        if may {
            self.out.insert(server, None);
        }
        may
    }

    /// Counts `server` as healed from `until` on.
    pub(super) fn heal(&mut self, server: usize, until: Instant) {
        self.out.insert(server, Some(until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn never_more_than_a_minority_is_out_and_the_wiped_count_for_longer() {
        let (mut outage, now) = (Outage::new(2), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        assert!(outage.strike(0, now) && outage.strike(3, now));
        assert!(!outage.strike(0, now), "it is struck already");
        assert!(!outage.strike(4, now), "two of five are enough");
        outage.heal(0, later(3));
        assert!(!outage.strike(4, later(2)) && !outage.strike(0, later(2)));
        assert!(outage.strike(4, later(3)));
        outage.heal(3, later(3));
        assert!(outage.strike(3, later(3)), "what was only stopped is back at once");
    }
}
