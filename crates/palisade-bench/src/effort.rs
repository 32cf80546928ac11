use std::time::Duration;

/// How much is measured. More rounds make a narrower spread, not another figure.
#[derive(Debug, Clone)]
pub(crate) struct Effort {
    /// How often we and the raw limit take turns.
    pub(crate) rounds: usize,
    /// How long one side's part of a round takes, about.
    pub(crate) part: Duration,
    /// How long one side's part of a round takes if it is many tasks, which need some time to settle.
    pub(crate) crowded_part: Duration,
    /// Rounds of shapes that start a crowd of processes.
    pub(crate) crowd_rounds: usize,
    /// How many grants a crowd has in one round, all together.
    pub(crate) crowd_grants: usize,
    /// How many queues are drained.
    pub(crate) drains: usize,
    /// How many holders are killed.
    pub(crate) kills: usize,
    /// How many are held at once.
    pub(crate) held: &'static [usize],
    /// The TTL of what is held; it is renewed every third of it.
    pub(crate) ttl: Duration,
    /// How many renewal intervals are watched.
    pub(crate) intervals: usize,
    /// How often a command is started in each round.
    pub(crate) commands: usize,
}

impl Effort {
    /// Enough to compare two versions.
    pub(crate) const FULL: Self = Self {
        rounds: 15,
        part: Duration::from_millis(60),
        crowded_part: Duration::from_secs(1),
        crowd_rounds: 11,
        crowd_grants: 3200,
        drains: 25,
        kills: 15,
        held: &[1_000, 10_000],
        ttl: Duration::from_secs(30),
        intervals: 3,
        commands: 15,
    };

    /// Enough to see that everything runs.
    pub(crate) const QUICK: Self = Self {
        rounds: 3,
        part: Duration::from_millis(5),
        crowded_part: Duration::from_millis(10),
        crowd_rounds: 1,
        crowd_grants: 256,
        drains: 1,
        kills: 2,
        held: &[100, 1_000],
        ttl: Duration::from_secs(3),
        intervals: 2,
        commands: 2,
    };

    /// How often what is held is renewed.
    pub(crate) fn interval(&self) -> Duration {
        self.ttl / 3
    }

    /// How many operations fill one part of a round if one takes `each`.
    pub(crate) fn operations(&self, each: Duration) -> usize {
        let fitting = self.part.as_nanos() / each.as_nanos().max(1);
        usize::try_from(fitting).unwrap_or(usize::MAX).clamp(50, 20_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_as_many_operations_as_fit_within_bounds() {
        assert_eq!(Effort::FULL.operations(Duration::from_micros(60)), 1000);
        assert_eq!(Effort::FULL.operations(Duration::from_mins(1)), 50);
        assert_eq!(Effort::FULL.operations(Duration::ZERO), 20_000);
    }
}
