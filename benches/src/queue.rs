use anyhow::Result;
use palisade::{Client, Clock, SystemClock};
use std::time::Duration;

use crate::stats::{Figure, Goal, median, spread};
use crate::worker::Worker;
use crate::{folder, url};

const WAITERS: usize = 16;

/// Sixteen processes wait in line; the line is drained.
pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let folder = folder()?;
    let client = palisade::connect(&url(&folder)).await?;
    let mut per_waiter = Vec::new();
    for _ in 0..9 {
        per_waiter.push(drain(&client, &url(&folder)).await?);
    }
    client.close().await;
    let (low, high) = spread(&per_waiter);
    Ok(vec![Figure {
        what: format!("queue of {WAITERS} processes drained, per waiter"),
        detail: format!("{low:.3}-{high:.3} ms over {} queues", per_waiter.len()),
        value: median(&mut per_waiter),
        unit: "ms",
        goal: Goal::AtMost(1.0),
    }])
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds")]
async fn drain(client: &Client, url: &str) -> Result<f64> {
    let guard = client.mutex("bench")?.acquire().await?;
    let mut workers = (0..WAITERS).map(|_| Worker::start(url, 1, false)).collect::<Result<Vec<_>>>()?;
    wait_for_waiters(client, WAITERS).await?;
    let start = SystemClock.now().as_nanos();
    guard.release().await?;
    let mut last = start;
    for worker in &mut workers {
        while let Some(granted) = worker.next_grant().await? {
            last = last.max(granted);
        }
    }
    for worker in workers {
        worker.finish().await?;
    }
    Ok((last - start) as f64 / 1e6 / WAITERS as f64)
}

/// Returns once so many wait for `bench`.
pub(crate) async fn wait_for_waiters(client: &Client, count: usize) -> Result<()> {
    while client.show("bench").await?.waiters.len() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
