//! The conformance suite that every Palisade engine must pass.
//!
//! An engine brings a [`Fixture`]; the suite brings the cases. Each [`Case`] quotes the clause of
//! the contract that it checks ([`palisade_core::Engine`]), runs in a namespace of its own, and is
//! bounded in time. A case that asks for something the engine's profile does not promise is *not
//! applicable*, and says why: nothing is skipped in silence.
//!
//! ```
//! use std::sync::Arc;
//! use palisade_testkit::{MemoryFixture, Options, run};
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let options = Options { filter: "claims::".to_owned(), ..Options::default() };
//! let report = run(Arc::new(MemoryFixture::default()), options).await.unwrap();
//! assert!(report.failed().is_empty(), "{report}");
//! # });
//! ```
//!
//! | to … | start at |
//! |---|---|
//! | test an engine | [`Fixture`], then [`run`] or [`Suite`] |
//! | see that the suite bites | [`broken`] |
//! | kill and stop processes that hold locks | [`taker`] |
//! | record what happened, and read it again | [`history`] |
//! | judge what happened | [`check`] |
//! | start an engine to try it on | [`launch`] |
//! | start the servers that an engine needs | [`servers`] |
//! | try a client on a real server | [`trial`] |
//! | let workers lock and faults strike | [`verify`] |
//! | try ten thousand seeds in a minute | [`sim`] |
//! | lose, delay and cut what goes over the network | [`proxy`], [`remote`] |

mod bounded;
#[cfg(feature = "suite")]
pub mod broken;
mod cancel;
#[cfg(feature = "suite")]
mod case;
pub mod check;
#[cfg(feature = "suite")]
mod context;
mod counting;
#[cfg(feature = "suite")]
mod fixture;
mod helper;
pub mod history;
pub mod launch;
#[cfg(feature = "suite")]
mod lock;
mod misuse;
mod open;
pub mod proxy;
pub mod remote;
#[cfg(feature = "suite")]
mod report;
#[cfg(feature = "suite")]
mod runner;
pub mod servers;
#[cfg(feature = "suite")]
mod session;
#[cfg(feature = "suite")]
pub mod sim;
#[cfg(feature = "suite")]
mod suite;
#[cfg(feature = "suite")]
pub mod taker;
pub mod trial;
pub mod turns;
pub mod verify;
#[cfg(feature = "suite")]
mod workload;

pub use cancel::{CancelAfter, Cancelled};
#[cfg(feature = "suite")]
pub use case::{Case, Run, Way};
#[cfg(feature = "suite")]
pub use context::Context;
pub use counting::{Calls, Counting};
#[cfg(feature = "suite")]
pub use fixture::{Fixture, MemoryFixture};
pub use helper::HelperProgram;
pub use misuse::Misuse;
pub use open::open;
#[cfg(feature = "suite")]
pub use report::{Outcome, Report, Verdict};
#[cfg(feature = "suite")]
pub use runner::{Options, Suite, run};
#[cfg(feature = "suite")]
pub use session::Session;
#[cfg(feature = "suite")]
pub use suite::cases;
