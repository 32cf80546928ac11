use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, ensure};
use palisade::Client;

use super::{Shape, Tell};
use crate::crowd::bounded;
use crate::effort::Effort;
use crate::report::{Measure, Requests, Row};
use crate::stats::{median, micros};
use crate::target::{Target, counted};
use crate::usage;
use crate::worker::{Job, Worker};

/// One process holds many: what does keeping them cost?
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for held in effort.held {
        rows.push(keep(target, effort, *held, tell).await?);
    }
    Ok(rows)
}

async fn keep(target: &Target, effort: &Effort, held: usize, tell: Tell<'_>) -> Result<Row> {
    let apart = memory(target, effort, held, tell).await?;
    tell(&format!("keepalive, {held} held: taking them"));
    let settings = Client::builder().ttl(effort.ttl);
    let (client, calls) = counted(&target.url, &target.namespace, settings).await?;
    let mut guards = Vec::with_capacity(held);
    for number in 0..held {
        guards.push(client.mutex(&format!("held/{number}"))?.acquire().await?);
    }
    let interval = effort.interval();
    // The first interval gathers claims that were made one by one.
    tokio::time::sleep(interval).await;
    // Before there is a raw side, which is no part of ours.
    let rss_mib = apart.or_else(usage::rss_mib);
    let raw = target.raw.client().await?;
    raw.fill(held).await?;
    raw.keep().await?;
    // What the server counted while only we renewed.
    let mut server = Some(0);
    let calls_before = calls.renew.load(Ordering::Relaxed);
    let (mut ratios, mut ours_us, mut raw_us) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = Instant::now();
    for round in 1..=effort.intervals {
        tell(&format!("keepalive, {held} held: interval {round} of {}", effort.intervals));
        next += interval;
        let before = target.raw.requests().await?;
        let cpu = usage::cpu();
        tokio::time::sleep_until(next.into()).await;
        let ours = micros(usage::cpu().saturating_sub(cpu));
        let during = target.raw.requests().await?.zip(before).map(|(after, before)| after - before);
        server = server.zip(during).map(|(sum, during)| sum + during);
        let cpu = usage::cpu();
        raw.keep().await?;
        let bare = micros(usage::cpu().saturating_sub(cpu));
        ratios.push(ours / bare);
        ours_us.push(ours);
        raw_us.push(bare);
    }
    let renewals = calls.renew.load(Ordering::Relaxed) - calls_before;
    ensure!(guards.iter().all(|guard| guard.is_valid()), "a guard was lost");
    let row = Row {
        raw: target.raw.floors().keep.to_owned(),
        operations: effort.intervals,
        cpu_us_per_op: median(&ours_us),
        rss_mib,
        note: Some(format!(
            "TTL {:?}, renewed every {interval:?}; the raw limit needs {:.0} µs of processor time",
            effort.ttl,
            median(&raw_us).unwrap_or(f64::NAN)
        )),
        ..Row::new(Shape::Keepalive, format!("{held} held"), format!("one renewal interval of all {held}"))
    };
    tell(&format!("keepalive, {held} held: giving them back"));
    for guard in guards {
        guard.release().await?;
    }
    client.close().await;
    let requests = Requests::per(effort.intervals, renewals, server.map(|sum| (0, sum)));
    Ok(row.ratios(Measure::Cpu, &ratios).requests(requests))
}

/// What a process needs that holds so many and does nothing else, unlike the bench, which also starts servers and
/// asks the raw side. None where an engine does not cross processes.
async fn memory(target: &Target, effort: &Effort, held: usize, tell: Tell<'_>) -> Result<Option<f64>> {
    if !target.crosses_processes {
        return Ok(None);
    }
    tell(&format!("keepalive, {held} held: the memory of one who holds them"));
    // The first interval gathers claims that were made one by one, the second renews them together.
    let keep = effort.interval() * 5 / 2;
    let worker = Worker::start(target, "apart", Job::HoldMany { held, ttl: effort.ttl, keep }).await?;
    let (share, worker) = bounded("a worker to hold them", worker.share()).await?;
    bounded("a worker to end", worker.end()).await?;
    Ok(share.rss_mib)
}
