use std::fmt;
use std::time::Duration;

/// One measured number with its goal.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) goal: Goal,
    /// Where the number comes from: raw times, spread.
    pub(crate) detail: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    pub(crate) fn is_met(&self) -> bool {
        match self.goal {
            Goal::AtMost(limit) => self.value <= limit,
            Goal::AtLeast(limit) => self.value >= limit,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, limit) = match self.goal {
            Goal::AtMost(limit) => ("<=", limit),
            Goal::AtLeast(limit) => (">=", limit),
        };
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        write!(
            f,
            "{verdict} {:<44} {:>9.3} {:<3} (goal {sign} {limit})  {}",
            self.what, self.value, self.unit, self.detail
        )
    }
}

/// The middle value; sorts in place.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn spread(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Jain's fairness index: 1 if all got the same, 1/n if one got everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    #[allow(clippy::cast_precision_loss, reason = "a handful of processes")]
    let count = shares.len() as f64;
    sum * sum / (count * squares)
}
