//! Distributed locks and coordination you can trust, on whichever engine you already run.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> palisade::Result<()> {
//! let client = palisade::connect("memory:").await?;
//! let mutex = client.mutex("nightly-report")?;
//!
//! if let Some(guard) = mutex.try_acquire().await? {
//!     // Only one holder at a time gets here. Every write carries the token, so that even a
//!     // holder that was paused past its deadline cannot overwrite its successor's work.
//!     let report = client.register("report")?.fenced(&guard).await?;
//!     report.write("42 orders").await?;
//!     guard.release().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | to … | use |
//! |---|---|
//! | let one do it at a time | [`Mutex`] |
//! | let many read or one write | [`RwLock`] |
//! | let at most N do it at once | [`Semaphore`] |
//! | know who leads | [`Election`] |
//! | take several, all or nothing | [`Many`] |
//! | run a job once per interval | [`Once`] |
//! | start or end together | [`Barrier`], [`Latch`] |
//! | keep a value that stale holders cannot overwrite | [`Register`], [`Fenced`] |
//!
//! Which engine decides is in the URL given to [`connect`]. What it promises is its
//! [`Profile`]; a program may insist with [`Demand`].

mod chance;
mod client;
mod connect;
mod guard;

mod recipes;
mod register;
mod supervised;
mod url;

pub use chance::{Chance, SystemChance};
pub use client::{Client, ClientBuilder};
#[cfg(feature = "mysql")]
pub use connect::mysql_schema;
#[cfg(feature = "postgres")]
pub use connect::postgres_schema;
pub use connect::{EngineInfo, connect, default_url, engines};
pub use guard::{Guard, LostReason, Released};
pub use palisade_core::{
    BootInstant, ClaimId, ClaimView, Clock, Condition, ConnectionState, Demand, Effect, Engine, Entry, Error,
    ErrorKind, Evicted, FencingToken, Mode, Name, Owner, Profile, Reach, Refusal, RefusalReason,
    ResourceView, Result, SystemClock, Token, Ttl, Version, WatchEvent, Written,
};
pub use recipes::{
    Barrier, BarrierGuard, Election, Latch, Leader, Leadership, Many, ManyGuard, Mutex, MutexGuard, Once,
    OnceOutcome, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphoreGuard, Stopped,
};
pub use register::{Fenced, Register, Stale, Update, Updated};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;
