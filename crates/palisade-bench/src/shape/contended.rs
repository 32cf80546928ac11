use anyhow::Result;

use super::{Shape, Tell};
use crate::crowd::{self, Crowd};
use crate::effort::Effort;
use crate::peer::PeerFigures;
use crate::report::{Measure, Row};
use crate::stats::{Spread, amount, median};
use crate::target::Target;

const SIZES: [usize; 2] = [16, 64];

/// How often each of a crowd of others has its turn: they may be slow.
const PEER_TURNS: usize = 20;

/// Many want one resource over and over; then many want it once, and the queue is drained.
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in SIZES {
        rows.push(over_and_over(target, effort, size, tell).await?);
    }
    if target.raw.measures_clients_of_one_process() {
        for size in SIZES {
            rows.push(in_one_process(target, effort, size, tell).await?);
        }
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
        let (one, bare) = in_turn(target, size, turns, round).await?;
        ours.push(one);
        raw.push(bare);
    }
    // The smallest crowd is enough to compare locks of others by.
    let peers =
        if size == SIZES[0] { beside_peers(target, effort, size, turns, tell).await? } else { Vec::new() };
    let requests = crowd::count(target, size, turns).await?;
    let handoffs = |crowd: &Crowd| amount(crowd.handoffs()) / crowd.seconds();
    let ratios: Vec<f64> = ours.iter().zip(&raw).map(|(ours, raw)| handoffs(ours) / handoffs(raw)).collect();
    let waits: Vec<f64> = ours.iter().flat_map(Crowd::waits_us).collect();
    let raw_waits: Vec<f64> = raw.iter().flat_map(Crowd::waits_us).collect();
    let row = Row {
        raw: target.raw.floors().turn.to_owned(),
        handoffs_per_second: middle(&ours, handoffs),
        worst_over_mean_wait: worst_over_mean(&waits),
        peers,
        worst_wait_ms: ours.iter().filter_map(Crowd::worst_wait_ms).max_by(f64::total_cmp),
        ..common(target, format!("{size} waiters"), "wait + release", &ours, &raw)
    };
    Ok(row.times(&waits, &raw_waits).ratios(Measure::Rate, &ratios).requests(requests))
}

/// The same by clients of one process, each with a connection of its own: how the locks of others were measured, from
/// whose figures the goals were made. What it leaves out is the kernel's work of changing from process to process.
async fn in_one_process(target: &Target, effort: &Effort, size: usize, tell: Tell<'_>) -> Result<Row> {
    let turns = effort.crowd_grants / size;
    let (mut rates, mut raw_rates) = (Vec::new(), Vec::new());
    for round in 1..=effort.crowd_rounds {
        tell(&format!("contended, {size} clients of one process: round {round} of {}", effort.crowd_rounds));
        let ours = async || crowd::rate_in_one_process(target, size, turns).await;
        let bare = async || crowd::bare_rate_in_one_process(target, size, turns).await;
        if round.is_multiple_of(2) {
            raw_rates.push(bare().await?);
            rates.push(ours().await?);
        } else {
            rates.push(ours().await?);
            raw_rates.push(bare().await?);
        }
    }
    let ratios: Vec<f64> = rates.iter().zip(&raw_rates).map(|(ours, raw)| ours / raw).collect();
    let row = Row {
        raw: target.raw.floors().turn.to_owned(),
        per_second: median(&rates),
        raw_per_second: median(&raw_rates),
        note: Some("The waiters are clients of one process, each with a connection of its own".to_owned()),
        ..Row::new(Shape::Contended, format!("{size} clients"), "wait + release")
    };
    Ok(row.ratios(Measure::Rate, &ratios))
}

/// One crowd of ours and one that is bare; each comes first in every other round, so that a host that slows down
/// favours neither.
async fn in_turn(target: &Target, size: usize, turns: usize, round: usize) -> Result<(Crowd, Crowd)> {
    let ours = async || crowd::run(target, size, turns).await?.all_served(turns);
    let bare = async || crowd::run_bare(target, size, turns).await?.all_served(turns);
    if round.is_multiple_of(2) {
        let bare = bare().await?;
        Ok((ours().await?, bare))
    } else {
        Ok((ours().await?, bare().await?))
    }
}

/// How our rate compares with that of others' locks, both in one process, and each first in every other round.
async fn beside_peers(
    target: &Target,
    effort: &Effort,
    size: usize,
    turns: usize,
    tell: Tell<'_>,
) -> Result<Vec<PeerFigures>> {
    let mut figures = Vec::new();
    let turns = turns.min(PEER_TURNS);
    for peer in target.raw.peers() {
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for round in 1..=effort.crowd_rounds {
            tell(&format!(
                "contended, {size} waiters beside {}: round {round} of {}",
                peer.name, effort.crowd_rounds
            ));
            let theirs = async || peer.crowd(&format!("bench-peer-{size}"), size, turns).await;
            let ours = async || crowd::rate_in_one_process(target, size, turns).await;
            let (ours, theirs) = if round % 2 == 0 {
                let theirs = theirs().await?;
                (ours().await?, theirs)
            } else {
                (ours().await?, theirs().await?)
            };
            rates.push(theirs);
            ratios.push(ours / theirs);
        }
        let per_second = median(&rates);
        figures.push(PeerFigures { name: peer.name, p50_us: None, per_second, ratio: Spread::of(&ratios) });
    }
    Ok(figures)
}

async fn drained(target: &Target, effort: &Effort, size: usize, tell: Tell<'_>) -> Result<Row> {
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for round in 1..=effort.drains {
        tell(&format!("contended, queue of {size}: {round} of {}", effort.drains));
        let (one, bare) = in_turn(target, size, 1, round).await?;
        ours.push(one);
        raw.push(bare);
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
