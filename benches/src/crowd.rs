use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::queue::wait_for_waiters;
use crate::stats::{Figure, Goal, jain};
use crate::worker::Worker;
use crate::{folder, url};

/// Many processes take one lock over and over: nobody starves, no wake-up is lost.
pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (processes, turns) in [(16, 200), (64, 50)] {
        figures.push(crowd(processes, turns).await?);
    }
    Ok(figures)
}

#[allow(clippy::cast_precision_loss, reason = "counts of grants")]
async fn crowd(processes: usize, turns: usize) -> Result<Figure> {
    let folder = folder()?;
    let url = url(&folder);
    let client = palisade::connect(&url).await?;
    let guard = client.mutex("bench")?.acquire().await?;
    let mut workers =
        (0..processes).map(|_| Worker::start(&url, turns, false)).collect::<Result<Vec<_>>>()?;
    wait_for_waiters(&client, processes).await?;
    let start = Instant::now();
    guard.release().await?;
    let mut grants = Vec::new();
    for (number, worker) in workers.iter_mut().enumerate() {
        while let Some(at) = worker.next_grant().await? {
            grants.push((at, number));
        }
    }
    let elapsed = start.elapsed();
    for worker in workers {
        worker.finish().await?;
    }
    client.close().await;
    anyhow::ensure!(grants.len() == processes * turns, "{} grants of {}", grants.len(), processes * turns);
    Ok(Figure {
        what: format!("{processes} processes on one resource, Jain index"),
        value: jain(&shares(&mut grants, processes).context("no grants")?),
        unit: "",
        goal: Goal::AtLeast(0.99),
        detail: format!(
            "{} grants, all served, {:.0} per second",
            grants.len(),
            grants.len() as f64 / elapsed.max(Duration::from_nanos(1)).as_secs_f64()
        ),
    })
}

/// How many grants each process had in the first half of the run, while all still wanted more.
#[allow(clippy::cast_precision_loss, reason = "counts of grants")]
fn shares(grants: &mut [(u64, usize)], processes: usize) -> Option<Vec<f64>> {
    grants.sort_unstable();
    let half = grants.get(..grants.len() / 2)?;
    let mut shares = vec![0.0; processes];
    for (_, number) in half {
        shares[*number] += 1.0;
    }
    Some(shares)
}
