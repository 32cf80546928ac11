//! Palisade's engines on SQL servers: lease rows in PostgreSQL, MySQL and MariaDB.
//!
//! ```no_run
//! # async fn example() -> palisade_core::Result<()> {
//! use palisade_sql::{PostgresConfig, SqlEngine};
//! let engine = SqlEngine::postgres(PostgresConfig::parse("postgres://me@localhost/shop")?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Claims are rows; functions of our own schema decide about them in the server, one statement per verb. What is
//! different from server to server is a folder (`postgres/`, `mysql/`), behind `server.rs`, and a schema (`schema/`); the rest is the same for all.
//!
//! Which file to open to change …
//!
//! | what | file |
//! |---|---|
//! | who comes in, who leaves, in which order | `schema/postgres.sql` |
//! | what a verb asks and what the answer means | `verbs.rs`; many at once: `together.rs` |
//! | what this client knows of its claims, and how it hears of them | `claims.rs`, `news.rs` |
//! | how claims are renewed, and by which lease | `renew.rs`, `groups.rs` |
//! | how a claim waits | `wait.rs`; woken by `GET_LOCK`: `mysql/bells.rs` |
//! | how registers and fences are kept | `registers.rs` |
//! | how connections are made, and made again | `link.rs`, `keeper.rs`, `postgres/dial.rs` |
//! | whom an encrypted connection trusts | `tls.rs` |
//! | what is asked of a server before it is trusted, and how its schema is made | `postgres/arrival.rs`, `postgres/schema.rs` |
//! | which statements there are | `postgres/statement.rs` |
//! | session locks | `advisory/`, `postgres/seat.rs`, `schema/postgres-sessions.sql` and the same of `mysql` |
//! | locks that ShedLock's clients see, too | `shedlock/`, `postgres/shedlock.rs`, `mysql/shedlock.rs` |
//! | what an error means | `postgres/error.rs` |

#![cfg(any(feature = "postgres", feature = "mysql"))]

mod address;
mod advisory;
mod claims;
mod engine;
mod error;
mod groups;
mod inspect;
mod keeper;
mod link;
#[cfg(feature = "mysql")]
mod mysql;
mod news;
#[cfg(feature = "postgres")]
mod postgres;
mod registers;
mod renew;
mod rows;
mod server;
mod shedlock;
mod tls;
mod together;
mod verbs;
mod wait;
mod watch;

pub use address::{Login, Tls};
pub use advisory::AdvisoryEngine;
#[cfg(feature = "mysql")]
pub use advisory::mysql_profile as mysql_advisory_profile;
#[cfg(feature = "postgres")]
pub use advisory::profile as advisory_profile;
pub use engine::SqlEngine;
#[cfg(feature = "postgres")]
pub use engine::profile;
#[cfg(feature = "mysql")]
pub use mysql::{MySqlConfig, Wake, mysql_schema, profile as mysql_profile};
#[cfg(feature = "postgres")]
pub use postgres::{Keys, Listen, PostgresConfig, schema};
pub use shedlock::ShedlockEngine;
