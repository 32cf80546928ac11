use std::time::Duration;

use serde::Serialize;

/// The middle of several rounds, with how far they went apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The round in the middle.
    pub median: Option<f64>,
    /// The smallest round.
    pub min: Option<f64>,
    /// The greatest round.
    pub max: Option<f64>,
}

impl Spread {
    /// Nothing was measured.
    pub const NONE: Self = Self { median: None, min: None, max: None };

    /// Of one number per round. A round that gave none, such as a division by zero, is left out.
    pub fn of(rounds: &[f64]) -> Self {
        let sorted = sorted(rounds);
        Self { median: at(&sorted, 0.5), min: sorted.first().copied(), max: sorted.last().copied() }
    }
}

/// The value below which this part (0 to 1) of `values` lies; none of nothing.
pub(crate) fn percentile(values: &[f64], part: f64) -> Option<f64> {
    at(&sorted(values), part)
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "an index into a list in memory")]
fn at(sorted: &[f64], part: f64) -> Option<f64> {
    let index = (sorted.len() as f64 * part) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied()
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A count, or a difference of clocks, as a number to calculate with.
#[allow(clippy::cast_precision_loss, reason = "what one run counts stays far below 2^52")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

/// The same of how many there are.
pub(crate) fn amount(count: usize) -> f64 {
    number(count as u64)
}

/// Jain's fairness index: 1 if all got the same, 1/n if one got everything.
pub(crate) fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (amount(shares.len()) * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        assert_eq!(
            Spread::of(&[3.0, 1.0, 2.0]),
            Spread { median: Some(2.0), min: Some(1.0), max: Some(3.0) }
        );
        assert_eq!(Spread::of(&[]), Spread::NONE);
        assert_eq!(Spread::of(&[f64::NAN, 1.0 / 0.0]), Spread::NONE);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 0.99), Some(100.0));
        assert_eq!(percentile(&hundred, 0.0), Some(1.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn fairness_is_one_if_all_got_the_same_and_a_share_if_one_got_all() {
        let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(close(jain(&[5.0, 5.0, 5.0]), 1.0));
        assert!(close(jain(&[9.0, 0.0, 0.0, 0.0]), 0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
