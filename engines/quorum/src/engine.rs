use std::time::Duration;

use palisade_core::{
    Consistency, Drift, Durability, Fairness, FamilyScope, Liveness, Modes, Profile, Reach, TokenPromise,
    Trips, Wakeup,
};

/// What a quorum promises, whatever its nodes do beyond it.
pub fn profile() -> Profile {
    Profile {
        engine: "redlock",
        reach: Reach::Network,
        consistency: Consistency::ClockBound,
        fairness: Fairness::None,
        tokens: TokenPromise {
            source: "the largest that a majority of the nodes stores",
            assumes: Some("that a majority of the nodes keeps its data"),
        },
        wakeup: Wakeup::Push,
        liveness: Liveness::Ttl,
        durability: Durability::Minority,
        modes: Modes { shared: false, slots: false },
        families: FamilyScope::OneQueue,
        registers: false,
        register_expiry: false,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 10 },
        batch: 500,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// Written next.
#[derive(Debug)]
pub struct QuorumEngine;

impl QuorumEngine {
    /// Connects.
    #[allow(clippy::unused_async, reason = "written next")]
    pub async fn open(
        _config: crate::QuorumConfig,
    ) -> palisade_core::Result<palisade_core::memory::MemoryEngine> {
        Err(palisade_core::Error::new(palisade_core::ErrorKind::Unsupported, "not there yet"))
    }
}
