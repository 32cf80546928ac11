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
//! | repeat what could happen to clients, from a seed | [`sim`] |

pub mod broken;
mod cancel;
mod case;
pub mod check;
mod context;
mod counting;
mod fixture;
pub mod history;
mod lock;
mod report;
mod runner;
mod session;
pub mod sim;
mod suite;
pub mod taker;
mod workload;

pub use cancel::{CancelAfter, Cancelled};
pub use case::{Case, Run, Way};
pub use context::Context;
pub use counting::{Calls, Counting};
pub use fixture::{Fixture, MemoryFixture};
pub use report::{Outcome, Report, Verdict};
pub use runner::{Options, Suite, run};
pub use session::Session;
pub use suite::cases;
