//! A memory engine in a server of its own, reached over TCP: what network faults are tried on.
//!
//! [`serve`] keeps the store; [`RemoteEngine`] is one client's connection to it. Between the two a
//! [`Proxy`](crate::proxy::Proxy) can be put. The server's memory ends with it; [`ServerOptions`]
//! say what its successor knows, so that both a restart that is right and one that forgets what
//! was granted can be made. [`ServerProcess`] is a server to be killed.
//!
//! ```
//! use palisade_core::{Effect, Engine, Name};
//! use palisade_testkit::proxy::{Proxy, Weather};
//! use palisade_testkit::remote::{RemoteEngine, ServerOptions, serve};
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let proxy = Proxy::start(listener.local_addr()?).await?;
//! tokio::spawn(serve(listener, ServerOptions::default()));
//! let engine = RemoteEngine::connect(proxy.address(), "jobs").await?;
//! proxy.set(Weather::CutAfterForwarding);
//! let lost = engine.read(&Name::new("r")?, None).await.unwrap_err();
//! assert_eq!(lost.effect(), Effect::Unknown);
//! assert!(engine.read(&Name::new("r")?, None).await.is_ok());
//! # anyhow::Ok(()) }).unwrap();
//! ```
//!
//! | rule | where |
//! |---|---|
//! | a grant is never believed longer than the server honours it | `wire::Stamp` |
//! | a withdrawal wins over its claim, also over two connections | `tombs` |
//! | what ended while the connection was down is told | `Ask::Hello`, `notes` |
//! | a server that counts other tokens is another server | `RemoteEngine::source` |

mod config;
mod engine;
mod frame;
mod link;
mod notes;
mod process;
mod server;
mod serving;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod tests;
mod tombs;
mod verbs;
mod watch;
mod wire;

use std::time::Duration;

use palisade_core::{Consistency, Drift, Profile, Reach, TokenPromise, Trips};

pub use self::config::RemoteConfig;
pub use self::engine::RemoteEngine;
pub use self::process::{ServerProcess, main};
pub use self::server::{ServerOptions, serve};

/// What the remote engine promises: what memory does, over a network, until the server ends.
pub fn profile() -> Profile {
    Profile {
        engine: "remote",
        reach: Reach::Network,
        consistency: Consistency::UntilFailover,
        tokens: TokenPromise {
            source: "a counter of the server",
            assumes: Some("that a server which follows another is given a greater epoch"),
        },
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 5 },
        batch: 4096,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
        ..palisade_core::memory::profile()
    }
}
