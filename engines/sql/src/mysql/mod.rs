//! How MySQL and MariaDB are spoken to.

mod arrival;
mod bells;
mod config;
mod dial;
mod ear;
mod error;
mod line;
mod named;
mod schema;
mod seat;
mod server;
mod sessions;
mod shedlock;

use std::time::Duration;

use palisade_core::{
    Consistency, Drift, Durability, Fairness, FamilyScope, Liveness, Modes, Profile, Reach, TokenPromise,
    Trips, Wakeup,
};

pub(crate) use self::arrival::arrive;
pub(crate) use self::bells::Bells;
pub use self::config::{MySqlConfig, Wake};
pub(crate) use self::dial::dial;
pub(crate) use self::line::Line;
pub use self::schema::mysql_schema;
pub(crate) use self::seat::Seat;
pub(crate) use self::shedlock::{Statements as ShedlockStatements, find as find_shedlock};

/// How often those who wait are looked after unless told otherwise.
const POLL: Duration = Duration::from_millis(25);

/// How often those who wait are looked after who are woken as a rule.
const POLL_BESIDE_BELLS: Duration = Duration::from_millis(250);

/// What to use where a session is many clients', or its locks are known to some only.
pub(crate) const ROWS: &str = "lease rows (mode=rows)";
const POLLED: &str = "no session locks to be woken by (wake=poll)";

/// What the engine promises on MySQL and MariaDB.
pub fn profile() -> Profile {
    Profile {
        engine: "mysql",
        reach: Reach::Network,
        consistency: Consistency::UntilFailover,
        fairness: Fairness::Fifo,
        tokens: TokenPromise {
            source: "a row of the database, never below the server's clock",
            assumes: Some("that a server that lost tokens is not set back behind them by its clock"),
        },
        wakeup: Wakeup::Poll(POLL),
        liveness: Liveness::Ttl,
        durability: Durability::Crash,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 10 },
        batch: 16_384,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}
