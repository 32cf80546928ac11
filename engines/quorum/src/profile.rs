use std::time::Duration;

use palisade_core::{
    Consistency, Drift, Durability, Fairness, FamilyScope, Liveness, Modes, Profile, Reach, TokenPromise,
    Trips, Wakeup,
};

/// What a quorum promises, whatever its nodes do beyond it. The drift margin is the configured one.
pub fn profile() -> Profile {
    Profile {
        engine: crate::error::ENGINE,
        reach: Reach::Network,
        consistency: Consistency::ClockBound,
        fairness: Fairness::None,
        tokens: TokenPromise {
            source: "the least that a majority of the nodes stores and none of a majority exceeds",
            assumes: Some(
                "that the nodes keep their data, or else that the clients' clocks agree to within the longest TTL",
            ),
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
