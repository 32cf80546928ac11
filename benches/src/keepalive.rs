use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;
use palisade::Client;
use palisade_core::{Claim, Engine, Layer, Renewed};
use palisade_embedded::{EmbeddedConfig, EmbeddedEngine};

use crate::folder;
use crate::stats::{Figure, Goal};

const HELD: usize = 10_000;
const INTERVALS: u32 = 4;

/// Ten thousand claims held by one process: what does keeping them cost?
#[allow(clippy::cast_precision_loss, reason = "counts of calls")]
pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let folder = folder()?;
    let ttl = Duration::from_secs(9);
    let engine = Arc::new(Counted {
        inner: EmbeddedEngine::open(EmbeddedConfig::new(folder.path())).await?,
        renewals: AtomicU64::new(0),
        claims: AtomicU64::new(0),
        nanos: AtomicU64::new(0),
    });
    let client = Client::builder().ttl(ttl).over(Arc::clone(&engine) as Arc<dyn Engine>)?;
    let mut guards = Vec::with_capacity(HELD);
    for number in 0..HELD {
        guards.push(client.mutex(&format!("lock/{number}"))?.acquire().await?);
    }
    // The first interval gathers claims that were made one by one.
    tokio::time::sleep(ttl / 3).await;
    let before = engine.renewals.load(Ordering::Relaxed);
    tokio::time::sleep(ttl / 3 * INTERVALS).await;
    let calls = engine.renewals.load(Ordering::Relaxed) - before;
    anyhow::ensure!(guards.iter().all(|guard| guard.is_valid()), "a guard was lost");
    let claims = engine.claims.load(Ordering::Relaxed).max(1);
    let each = engine.nanos.load(Ordering::Relaxed) as f64 / claims as f64 / 1e3;
    client.close().await;
    Ok(vec![Figure {
        what: format!("{HELD} held claims, renewal transactions per interval"),
        value: calls as f64 / f64::from(INTERVALS),
        unit: "",
        goal: Goal::AtMost(1.5),
        detail: format!("{calls} in {INTERVALS} intervals, {each:.2} us per claim"),
    }])
}

/// Counts renewals, which the embedded engine carries out in one transaction each.
#[derive(Debug)]
struct Counted {
    inner: EmbeddedEngine,
    renewals: AtomicU64,
    claims: AtomicU64,
    nanos: AtomicU64,
}

#[async_trait]
impl Layer for Counted {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> palisade::Result<Vec<Renewed>> {
        let start = Instant::now();
        let answer = Engine::renew(&self.inner, claims).await;
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.claims.fetch_add(claims.len() as u64, Ordering::Relaxed);
        self.nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        answer
    }
}
