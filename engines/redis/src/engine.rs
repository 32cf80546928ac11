use std::time::Duration;

use palisade_core::{
    Consistency, Drift, Durability, Fairness, FamilyScope, Liveness, Modes, Profile, Reach, TokenPromise,
    Trips, Wakeup,
};

/// What the Redis engine promises.
pub fn profile() -> Profile {
    Profile {
        engine: "redis",
        reach: Reach::Network,
        consistency: Consistency::UntilFailover,
        fairness: Fairness::Fifo,
        tokens: TokenPromise {
            source: "a counter on the server, at least its time in microseconds",
            assumes: Some("that the server's clock does not step back when the server loses data"),
        },
        wakeup: Wakeup::Push,
        liveness: Liveness::Ttl,
        durability: Durability::Process,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 10 },
        batch: 500,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// Written next.
#[derive(Debug)]
pub struct RedisEngine;

impl RedisEngine {
    /// Connects.
    #[allow(clippy::unused_async, reason = "written next")]
    pub async fn open(
        _config: crate::RedisConfig,
    ) -> palisade_core::Result<palisade_core::memory::MemoryEngine> {
        Err(palisade_core::Error::new(palisade_core::ErrorKind::Unsupported, "not there yet"))
    }
}
