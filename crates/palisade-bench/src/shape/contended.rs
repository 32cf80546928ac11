use anyhow::Result;

use super::{Shape, Tell};
use crate::crowd::{self, Crowd};
use crate::effort::Effort;
use crate::report::{Measure, Row};
use crate::stats::{amount, median};
use crate::target::Target;

const SIZES: [usize; 2] = [16, 64];

/// Many want one resource over and over; then many want it once, and the queue is drained.
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in SIZES {
        rows.push(over_and_over(target, effort, size, tell).await?);
    }
    for size in SIZES {
        rows.push(drained(target, effort, size, tell).await?);
    }
    Ok(rows)
}

async fn over_and_over(target: &Target, effort: &Effort, size: usize, tell: Tell<'_>) -> Result<Row> {
    let turns = effort.crowd_grants / size;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for round in 1..=effort.crowd_rounds {
        tell(&format!("contended, {size} waiters: round {round} of {}", effort.crowd_rounds));
        ours.push(crowd::run(target, size, turns).await?.all_served(turns)?);
        raw.push(crowd::run_bare(target, size, turns).await?.all_served(turns)?);
    }
    let requests = crowd::count(target, size, turns).await?;
    let handoffs = |crowd: &Crowd| amount(crowd.handoffs()) / crowd.seconds();
    let ratios: Vec<f64> = ours.iter().zip(&raw).map(|(ours, raw)| handoffs(ours) / handoffs(raw)).collect();
    let waits: Vec<f64> = ours.iter().flat_map(Crowd::waits_us).collect();
    let raw_waits: Vec<f64> = raw.iter().flat_map(Crowd::waits_us).collect();
    let row = Row {
        raw: target.raw.floors().turn.to_owned(),
        handoffs_per_second: middle(&ours, handoffs),
        worst_over_mean_wait: worst_over_mean(&waits),
        worst_wait_ms: ours.iter().filter_map(Crowd::worst_wait_ms).max_by(f64::total_cmp),
        ..common(target, format!("{size} waiters"), "wait + release", &ours, &raw)
    };
    Ok(row.times(&waits, &raw_waits).ratios(Measure::Rate, &ratios).requests(requests))
}

async fn drained(target: &Target, effort: &Effort, size: usize, tell: Tell<'_>) -> Result<Row> {
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for round in 1..=effort.drains {
        tell(&format!("contended, queue of {size}: {round} of {}", effort.drains));
        ours.push(crowd::run(target, size, 1).await?.all_served(1)?);
        raw.push(crowd::run_bare(target, size, 1).await?.all_served(1)?);
    }
    let requests = crowd::count(target, size, 1).await?;
    let ratios: Vec<f64> = ours.iter().zip(&raw).map(|(ours, raw)| ours.seconds() / raw.seconds()).collect();
    let gaps: Vec<f64> = ours.iter().flat_map(Crowd::gaps_us).collect();
    let raw_gaps: Vec<f64> = raw.iter().flat_map(Crowd::gaps_us).collect();
    let row = Row {
        raw: target.raw.floors().turn.to_owned(),
        handoffs_per_second: middle(&ours, rate),
        // Everyone has it once, however fair.
        jain: None,
        // It takes longer to note what it used than to use it.
        cpu_us_per_op: None,
        ..common(target, format!("queue of {size}"), "hand-over to the next of the queue", &ours, &raw)
    };
    Ok(row.times(&gaps, &raw_gaps).ratios(Measure::Time, &ratios).requests(requests))
}

fn common(target: &Target, variant: String, operation: &str, ours: &[Crowd], raw: &[Crowd]) -> Row {
    let who = if target.crosses_processes { "processes" } else { "tasks of one process" };
    Row {
        per_second: middle(ours, rate),
        raw_per_second: middle(raw, rate),
        jain: middle(ours, |crowd| crowd.jain().unwrap_or(f64::NAN)),
        cpu_us_per_op: middle(ours, Crowd::cpu_us_per_grant),
        rss_mib: ours.iter().filter_map(Crowd::rss_mib).max_by(f64::total_cmp),
        note: Some(format!("The waiters are {who}")),
        ..Row::new(Shape::Contended, variant, operation)
    }
}

fn rate(crowd: &Crowd) -> f64 {
    amount(crowd.grants()) / crowd.seconds()
}

fn middle(crowds: &[Crowd], figure: impl Fn(&Crowd) -> f64) -> Option<f64> {
    median(&crowds.iter().map(figure).collect::<Vec<_>>())
}

fn worst_over_mean(waits: &[f64]) -> Option<f64> {
    let worst = waits.iter().copied().max_by(f64::total_cmp)?;
    let mean = waits.iter().sum::<f64>() / amount(waits.len());
    (mean > 0.0).then(|| worst / mean)
}
