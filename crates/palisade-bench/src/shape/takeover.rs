use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use palisade::{Client, Clock, SystemClock, Ttl};

use super::{Shape, Tell};
use crate::crowd::{bounded, until_waiting};
use crate::effort::Effort;
use crate::raw::RawClient;
use crate::report::{Measure, Row};
use crate::stats::{median, number};
use crate::target::Target;
use crate::usage;
use crate::worker::{Job, Worker};

const RESOURCE: &str = "bench";

/// The holder is killed with −9: how long until the one who waits holds?
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    if !target.crosses_processes {
        let why = "holder and waiter share one process, and kill -9 ends both";
        return Ok(vec![Row::not_applicable(Shape::Takeover, why)]);
    }
    let (client, raw) = (target.client().await?, target.raw.client().await?);
    let ttl = target.raw.lease().unwrap_or(Ttl::default().as_duration());
    // Whoever waits for a TTL waits long, and always for as long.
    let kills = if target.raw.lease().is_some() { effort.kills.div_ceil(3) } else { effort.kills };
    let (mut ours_us, mut raw_us) = (Vec::new(), Vec::new());
    for round in 1..=kills {
        tell(&format!("takeover: {round} of {kills}"));
        ours_us.push(ours(target, &client, ttl).await?);
        raw_us.push(bare(target, &raw).await?);
    }
    client.close().await;
    let ratios: Vec<f64> = ours_us.iter().zip(&raw_us).map(|(ours, raw)| ours / raw).collect();
    let row = Row {
        raw: target.raw.floors().hold.to_owned(),
        rss_mib: usage::rss_mib(),
        takeover_ms: median(&ours_us).map(|us| us / 1e3),
        raw_takeover_ms: median(&raw_us).map(|us| us / 1e3),
        note: Some(format!("TTL {ttl:?}")),
        ..Row::new(Shape::Takeover, "kill -9", "from the kill to the next grant")
    };
    Ok(vec![row.times(&ours_us, &raw_us).ratios(Measure::Time, &ratios)])
}

async fn ours(target: &Target, client: &Client, ttl: Duration) -> Result<f64> {
    let mut holder = Worker::start(target, RESOURCE, Job::Hold { ttl }).await?;
    bounded("the holder to hold", holder.ready()).await?;
    let mutex = client.mutex(RESOURCE)?;
    let waiting = tokio::spawn(async move {
        let guard = mutex.acquire().await?;
        let had = now();
        guard.release().await?;
        anyhow::Ok(had)
    });
    until_waiting(client, RESOURCE, 1).await?;
    let killed = now();
    holder.kill()?;
    let had = bounded("the next one to hold", async { waiting.await? }).await?;
    Ok(number(had.saturating_sub(killed)) / 1e3)
}

async fn bare(target: &Target, raw: &Arc<dyn RawClient>) -> Result<f64> {
    let mut holder = Worker::start(target, RESOURCE, Job::BareHold).await?;
    bounded("the holder to hold", holder.ready()).await?;
    let waiting = tokio::spawn({
        let raw = Arc::clone(raw);
        async move {
            raw.hold().await?;
            let had = now();
            raw.let_go().await?;
            anyhow::Ok(had)
        }
    });
    // As ours does: to start, to open and to fall asleep are no part of the time.
    bounded("the bare one to wait", raw.until_waiting()).await?;
    let killed = now();
    holder.kill()?;
    let had = bounded("the next one to hold", async { waiting.await? }).await?;
    Ok(number(had.saturating_sub(killed)) / 1e3)
}

fn now() -> u64 {
    SystemClock.now().as_nanos()
}
