//! The side that checks.
//!
//! A lock alone does not protect data: its holder may be stopped for longer than the lock lasts, and write when it wakes. What
//! protects data is the database that takes the write. This crate has what is needed there, inside the *caller's* own
//! transaction, with the driver the caller already has, whichever engine gave the lock.
//!
//! | to … | use |
//! |---|---|
//! | refuse writes of whoever lost its lock | [`Fence`] |
//! | lock rows of a table of one's own | [`RowLock`] |
//! | write only what nobody else has changed since | [`Versioned`] |
//! | reserve some of a number of things, never more | [`Counter`] |
//! | give each of some things once | [`Seats`] |
//! | refuse HTTP requests of whoever lost its lock | `http::FenceLayer` (feature `tower`) |
//! | do a transaction again when the database says so | [`Attempts`] |
//!
//! Drivers are features: see [`Transaction`].

mod backoff;
mod cells;
mod columns;
mod dialect;
mod driver;
mod error;
mod fence;
#[cfg(feature = "tower")]
pub mod http;
mod optimistic;
mod reserve;
mod row_lock;
mod schema;
mod value;

pub use backoff::{Attempts, Backoff, Retryable};
pub use dialect::{Dialect, Identifier, InvalidIdentifier};
#[cfg(feature = "rusqlite")]
pub use driver::at_once;
pub use driver::{Database, Transaction};
pub use error::{DbError, DbErrorKind};
pub use fence::{Fence, FenceError};
pub use optimistic::{Changes, Conflict, Merge, OnConflict, Record, UpdateError, Versioned, Written};
pub use reserve::{Counter, Keep, Reserved, Seats, State, Stock};
#[cfg(feature = "redis")]
pub use reserve::{RedisCounter, RedisSeats};
pub use row_lock::{RowLock, RowLocked};
pub use value::{Row, SqlType, Value};
