use anyhow::{Context, Result};
use palisade::{Clock, SystemClock};

use crate::queue::wait_for_waiters;
use crate::stats::{Figure, Goal, median, spread};
use crate::worker::Worker;
use crate::{folder, url};

/// The holder is killed with −9; how long until the waiter holds?
#[allow(clippy::cast_precision_loss, reason = "milliseconds")]
pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let folder = folder()?;
    let client = palisade::connect(&url(&folder)).await?;
    let mutex = client.mutex("bench")?;
    let mut times = Vec::new();
    for _ in 0..21 {
        let mut holder = Worker::start(&url(&folder), 1, true)?;
        holder.next_grant().await?.context("the holder holds")?;
        let waiting = tokio::spawn({
            let mutex = mutex.clone();
            async move {
                let guard = mutex.acquire().await?;
                let at = SystemClock.now().as_nanos();
                guard.release().await?;
                anyhow::Ok(at)
            }
        });
        wait_for_waiters(&client, 1).await?;
        holder.pid().context("the holder lives")?;
        let killed = SystemClock.now().as_nanos();
        holder.kill()?;
        times.push((waiting.await?? - killed) as f64 / 1e6);
    }
    client.close().await;
    let (low, high) = spread(&times);
    Ok(vec![Figure {
        what: "take-over after kill -9 of the holder".to_owned(),
        detail: format!(
            "median of {}, {low:.2}-{high:.2} ms, TTL {:?}",
            times.len(),
            palisade::Ttl::default().as_duration()
        ),
        value: median(&mut times),
        unit: "ms",
        goal: Goal::AtMost(50.0),
    }])
}
