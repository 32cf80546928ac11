use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
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

/// How often each task takes and releases while requests are counted.
const COUNTED: usize = 10;

/// 64 tasks of one process take and release, each what nobody else wants, over one connection.
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    let (client, raw) = (target.client().await?, target.raw.client().await?);
    let ours = async |time| Part::of(|task, until| ours(client.clone(), task, until), time).await;
    let bare = async |time| Part::of(|task, until| bare(Arc::clone(&raw), task, until), time).await;
    ours(effort.part).await?;
    // Before there are many figures to keep.
    let rss_mib = usage::rss_mib();
    bare(effort.part).await?;
    let (mut ours_us, mut raw_us) = (Vec::new(), Vec::new());
    let (mut ratios, mut cpu_us, mut rates, mut raw_rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=effort.rounds {
        tell(&format!("throughput, {TASKS} tasks: round {round} of {}", effort.rounds));
        // Each comes first in every other round, so that a host that slows down favours neither.
        let (part, raw_part) = if round.is_multiple_of(2) {
            let raw_part = bare(effort.crowded_part).await?;
            (ours(effort.crowded_part).await?, raw_part)
        } else {
            (ours(effort.crowded_part).await?, bare(effort.crowded_part).await?)
        };
        ratios.push(part.rate() / raw_part.rate());
        cpu_us.push(micros(part.cpu) / amount(part.count));
        rates.push(part.rate());
        raw_rates.push(raw_part.rate());
        ours_us.extend(part.times_us);
        raw_us.extend(raw_part.times_us);
    }
    client.close().await;
    let requests = target.count(TASKS * COUNTED, async |client| count(client).await).await?;
    let row = Row {
        raw: target.raw.floors().pair.to_owned(),
        per_second: median(&rates),
        raw_per_second: median(&raw_rates),
        cpu_us_per_op: median(&cpu_us),
        rss_mib,
        ..Row::new(Shape::Throughput, format!("{TASKS} tasks"), "take + release")
    };
    Ok(vec![row.times(&ours_us, &raw_us).ratios(Measure::Rate, &ratios).requests(requests)])
}

/// What all tasks did within one part of a round.
struct Part {
    took: Duration,
    cpu: Duration,
    count: usize,
    /// How long operations took, of each task the first.
    times_us: Vec<f64>,
}

/// What one task did.
#[derive(Default)]
struct Done {
    count: usize,
    times_us: Vec<f64>,
}

impl Done {
    /// More of each task would tell no more, and fill the memory.
    const KEPT: usize = 1000;

    fn add(&mut self, us: f64) {
        self.count += 1;
        if self.times_us.len() < Self::KEPT {
            self.times_us.push(us);
        }
    }
}

impl Part {
    /// Has all tasks run for `time`; each ends with the operation that it is at.
    async fn of<F>(task: impl Fn(usize, Instant) -> F, time: Duration) -> Result<Self>
    where
        F: Future<Output = Result<Done>> + Send + 'static,
    {
        let (start, cpu) = (Instant::now(), usage::cpu());
        let mut running: JoinSet<_> = (0..TASKS).map(|number| task(number, start + time)).collect();
        let mut all = Done::default();
        while let Some(done) = running.join_next().await {
            let done = done??;
            all.count += done.count;
            all.times_us.extend(done.times_us);
        }
        let cpu = usage::cpu().saturating_sub(cpu);
        Ok(Self { took: start.elapsed(), cpu, count: all.count, times_us: all.times_us })
    }

    fn rate(&self) -> f64 {
        amount(self.count) / self.took.as_secs_f64()
    }
}

async fn ours(client: Client, task: usize, until: Instant) -> Result<Done> {
    let mut done = Done::default();
    while Instant::now() < until {
        done.add(pair(&client, task, done.count).await?);
    }
    Ok(done)
}

async fn bare(raw: Arc<dyn RawClient>, task: usize, until: Instant) -> Result<Done> {
    let mut done = Done::default();
    while Instant::now() < until {
        let key = resource(task, done.count);
        let start = Instant::now();
        raw.pair(&key).await?;
        done.add(micros(start.elapsed()));
    }
    Ok(done)
}

/// The same so often, to count what is asked.
async fn count(client: &Client) -> Result<()> {
    let each = async |task| -> Result<()> {
        for number in 0..COUNTED {
            pair(client, task, number).await?;
        }
        Ok(())
    };
    try_join_all((0..TASKS).map(each)).await.map(drop)
}

async fn pair(client: &Client, task: usize, number: usize) -> Result<f64> {
    let mutex = client.mutex(&resource(task, number))?;
    let start = Instant::now();
    give(take(&mutex).await?).await?;
    Ok(micros(start.elapsed()))
}

/// A few of each task's own, so that nothing depends on how many fit into a part.
fn resource(task: usize, number: usize) -> String {
    format!("bench/{task}/{}", number % 100)
}
