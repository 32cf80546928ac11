use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use palisade::Client;
use tokio::task::JoinSet;

use super::{Shape, Tell};
use crate::effort::Effort;
use crate::raw::RawClient;
use crate::report::{Measure, Row};
use crate::stats::{amount, median, micros};
use crate::target::{Target, give, take};
use crate::usage;

const TASKS: usize = 64;

/// 64 tasks of one process take and release, each what nobody else wants, over one connection.
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    let (client, raw) = (target.client().await?, target.raw.client().await?);
    let (took, _) = all(TASKS, |task| ours(client.clone(), task, 10)).await?;
    // Twice the part of a single client: 64 tasks need some time to settle.
    let pairs = (2 * effort.operations(took / 640)).div_ceil(TASKS).max(5);
    let (mut ours_us, mut raw_us) = (Vec::new(), Vec::new());
    let (mut ratios, mut cpu_us, mut rates, mut raw_rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let total = amount(TASKS * pairs);
    for round in 1..=effort.rounds {
        tell(&format!("throughput, {TASKS} tasks: round {round} of {}", effort.rounds));
        let cpu = usage::cpu();
        let (took, times) = all(TASKS, |task| ours(client.clone(), task, pairs)).await?;
        cpu_us.push(micros(usage::cpu().saturating_sub(cpu)) / total);
        let (raw_took, raw_times) = all(TASKS, |task| bare(Arc::clone(&raw), task, pairs)).await?;
        let (rate, raw_rate) = (total / took.as_secs_f64(), total / raw_took.as_secs_f64());
        ratios.push(rate / raw_rate);
        rates.push(rate);
        raw_rates.push(raw_rate);
        ours_us.extend(times);
        raw_us.extend(raw_times);
    }
    client.close().await;
    let requests = target
        .count(TASKS * 10, async |client| all(TASKS, |task| ours(client.clone(), task, 10)).await.map(drop))
        .await?;
    let row = Row {
        raw: target.raw.floors().pair.to_owned(),
        per_second: median(&rates),
        raw_per_second: median(&raw_rates),
        cpu_us_per_op: median(&cpu_us),
        rss_mib: usage::rss_mib(),
        ..Row::new(Shape::Throughput, format!("{TASKS} tasks"), "take + release")
    };
    Ok(vec![row.times(&ours_us, &raw_us).ratios(Measure::Rate, &ratios).requests(requests)])
}

/// Runs so many tasks at once: how long all of them took, and the time of each operation.
async fn all<F>(tasks: usize, task: impl Fn(usize) -> F) -> Result<(Duration, Vec<f64>)>
where
    F: Future<Output = Result<Vec<f64>>> + Send + 'static,
{
    let start = Instant::now();
    let mut running: JoinSet<_> = (0..tasks).map(task).collect();
    let mut times = Vec::new();
    while let Some(done) = running.join_next().await {
        times.extend(done??);
    }
    Ok((start.elapsed(), times))
}

async fn ours(client: Client, task: usize, pairs: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(pairs);
    for number in 0..pairs {
        let mutex = client.mutex(&format!("bench/{task}/{number}"))?;
        let start = Instant::now();
        give(take(&mutex).await?).await?;
        times.push(micros(start.elapsed()));
    }
    Ok(times)
}

async fn bare(raw: Arc<dyn RawClient>, task: usize, pairs: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(pairs);
    for number in 0..pairs {
        let key = format!("bench/{task}/{number}");
        let start = Instant::now();
        raw.pair(&key).await?;
        times.push(micros(start.elapsed()));
    }
    Ok(times)
}
