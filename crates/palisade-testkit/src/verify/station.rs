//! Where a worker stands: its clients, its chance, its voice.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use palisade::Client;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::teller::Teller;
use crate::CancelAfter;

/// What a worker works with.
#[derive(Debug, Clone)]
pub(super) struct Station {
    /// Asks for locks.
    pub(super) client: Client,
    /// Keeps registers; the same one where the engine has registers of its own.
    pub(super) registers: Client,
    pub(super) teller: Teller,
    pub(super) ttl: Duration,
    /// Whether futures are dropped half-way.
    pub(super) cancels: bool,
    /// Whether to leave time between rounds even when nothing holds them up.
    pub(super) unhurried: bool,
}

impl Station {
    /// What others see as this worker's value.
    pub(super) fn name(&self) -> String {
        format!("worker {}", self.teller.process())
    }

    /// Carries `work` out, or drops it at one of its awaits or after a moment.
    pub(super) async fn perhaps_cancelled<T>(
        &self,
        chance: &mut Chance,
        work: impl Future<Output = T>,
    ) -> Result<T, Dropped> {
        if !self.cancels || !chance.one_in(12) {
            return Ok(work.await);
        }
        if chance.one_in(2) {
            return CancelAfter::new(chance.below(4) as usize + 1, work).await.map_err(|_| Dropped);
        }
        let moment = Duration::from_millis(chance.below(5).into());
        tokio::time::timeout(moment, work).await.map_err(|_| Dropped)
    }

    /// A pause between two rounds; short, because what is checked is what happens.
    pub(super) async fn breathe(&self, chance: &mut Chance) {
        if self.unhurried || chance.one_in(3) {
            tokio::time::sleep(Duration::from_millis(chance.below(3).into())).await;
        } else {
            tokio::task::yield_now().await;
        }
    }

    /// A short time to work.
    pub(super) fn moment(&self, chance: &mut Chance) -> Duration {
        let longest = u32::try_from(self.ttl.as_millis() / 50).unwrap_or(u32::MAX).max(1);
        if chance.one_in(2) { Duration::ZERO } else { Duration::from_millis(chance.below(longest).into()) }
    }
}

/// A future was dropped half-way, on purpose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dropped;

impl Dropped {
    /// How histories say it.
    pub(super) const REASON: &'static str = "cancelled";
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::REASON)
    }
}

/// Chance that can be repeated.
#[derive(Debug)]
pub(super) struct Chance(StdRng);

impl Chance {
    /// The same `seed` and `stream` give the same chance.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(StdRng::seed_from_u64(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// A number below `end`, which is at least 1.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.0.random_range(0..end.max(1))
    }

    /// A number from 0 to 1.
    pub(super) fn fraction(&mut self) -> f64 {
        self.0.random_range(0.0..1.0)
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }
}
