use serde::Serialize;

use crate::goals::Goal;
use crate::machine::Machine;
use crate::peer::PeerFigures;
use crate::shape::Shape;
use crate::stats::{Spread, percentile};

/// What one run found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The engine, as `palisade engines` calls it.
    pub engine: &'static str,
    /// Of Palisade.
    pub version: &'static str,
    /// `release`, or `debug`, whose figures say little.
    pub build: &'static str,
    /// Whether only few rounds were run.
    pub quick: bool,
    /// When it began.
    pub began: String,
    /// What kind of machine it ran on.
    pub machine: Machine,
    /// One for each variant of each shape.
    pub rows: Vec<Row>,
    /// What the project wants of this engine, and whether this run met it; none of a quick run.
    pub goals: Vec<Goal>,
}

/// One variant of a shape. What was not measured, or makes no sense for the shape, is `None`.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was done.
    pub shape: Shape,
    /// Which kind of it.
    pub variant: String,
    /// What one operation is.
    pub operation: String,
    /// What the raw limit did for one.
    pub raw: String,
    /// How often we and the raw limit took turns.
    pub rounds: usize,
    /// How many operations of ours were timed, all rounds together.
    pub operations: usize,
    /// Half of all operations took no longer; the unit of time is microseconds.
    pub p50_us: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99_us: Option<f64>,
    /// Operations per second, of the median round.
    pub per_second: Option<f64>,
    /// Changes of the holder per second, of the median round.
    pub handoffs_per_second: Option<f64>,
    /// What the server, or the database, counted for one operation; where it does not count, our calls.
    pub requests_per_op: Option<f64>,
    /// Calls of our client to the engine for one operation.
    pub calls_per_op: Option<f64>,
    /// Jain's index of who got how much: 1 if all got the same.
    pub jain: Option<f64>,
    /// The longest wait in mean waits.
    pub worst_over_mean_wait: Option<f64>,
    /// The longest wait.
    pub worst_wait_ms: Option<f64>,
    /// Our figure over that of the raw limit in the same round.
    pub ratio_to_raw: Spread,
    /// Which figure that is.
    pub ratio_of: Measure,
    /// Half of all operations of the raw limit took no longer.
    pub raw_p50_us: Option<f64>,
    /// Operations per second of the raw limit, of the median round.
    pub raw_per_second: Option<f64>,
    /// Processor time of all client processes for one operation.
    pub cpu_us_per_op: Option<f64>,
    /// The memory of the largest client process.
    pub rss_mib: Option<f64>,
    /// From the death of a holder to the next grant, of the median round.
    pub takeover_ms: Option<f64>,
    /// The same of the raw limit.
    pub raw_takeover_ms: Option<f64>,
    /// Locks of others on the same engine, in the same run.
    pub peers: Vec<PeerFigures>,
    /// What one must know to read it; why it does not apply, if nothing was measured.
    pub note: Option<String>,
}

/// What a ratio compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Times: more than 1 is slower than the raw limit.
    Time,
    /// Operations per second: less than 1 is slower than the raw limit.
    Rate,
    /// Processor time: more than 1 is dearer than the raw limit.
    Cpu,
}

/// Requests for one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests {
    pub(crate) requests: f64,
    pub(crate) calls: f64,
}

impl Row {
    /// A row with nothing measured yet.
    pub(crate) fn new(shape: Shape, variant: impl Into<String>, operation: impl Into<String>) -> Self {
        Self {
            shape,
            variant: variant.into(),
            operation: operation.into(),
            raw: String::new(),
            rounds: 0,
            operations: 0,
            p50_us: None,
            p99_us: None,
            per_second: None,
            handoffs_per_second: None,
            requests_per_op: None,
            calls_per_op: None,
            jain: None,
            worst_over_mean_wait: None,
            worst_wait_ms: None,
            ratio_to_raw: Spread::NONE,
            ratio_of: Measure::Time,
            raw_p50_us: None,
            raw_per_second: None,
            cpu_us_per_op: None,
            rss_mib: None,
            takeover_ms: None,
            raw_takeover_ms: None,
            peers: Vec::new(),
            note: None,
        }
    }

    /// Says why a shape does not apply, instead of leaving it out.
    pub(crate) fn not_applicable(shape: Shape, why: &str) -> Self {
        Self { note: Some(format!("n/a: {why}")), ..Self::new(shape, "n/a", "none") }
    }

    /// With the times of all operations, ours and the raw limit's.
    pub(crate) fn times(self, ours_us: &[f64], raw_us: &[f64]) -> Self {
        Self {
            operations: ours_us.len(),
            p50_us: percentile(ours_us, 0.5),
            p99_us: percentile(ours_us, 0.99),
            raw_p50_us: percentile(raw_us, 0.5),
            ..self
        }
    }

    /// With one ratio per round.
    pub(crate) fn ratios(self, of: Measure, ratios: &[f64]) -> Self {
        Self { rounds: ratios.len(), ratio_of: of, ratio_to_raw: Spread::of(ratios), ..self }
    }

    pub(crate) fn requests(self, requests: Requests) -> Self {
        Self { requests_per_op: Some(requests.requests), calls_per_op: Some(requests.calls), ..self }
    }

    /// Our figure over that of a peer.
    pub(crate) fn ratio_to(&self, peer: &str) -> Option<f64> {
        self.peers.iter().find(|figures| figures.name == peer)?.ratio.median
    }

    /// How many times the raw limit's cost ours is, whichever figure was compared.
    pub(crate) fn cost(&self) -> Option<(f64, f64, f64)> {
        let Spread { median: Some(median), min: Some(min), max: Some(max) } = self.ratio_to_raw else {
            return None;
        };
        Some(match self.ratio_of {
            Measure::Time | Measure::Cpu => (median, min, max),
            Measure::Rate => (1.0 / median, 1.0 / max, 1.0 / min),
        })
    }
}
