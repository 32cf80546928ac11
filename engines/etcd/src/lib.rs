//! Palisade's etcd engine: locks that etcd's own clients understand.
//!
//! ```no_run
//! # async fn example() -> palisade_core::Result<()> {
//! use palisade_etcd::{EtcdConfig, EtcdEngine};
//! let engine = EtcdEngine::open(EtcdConfig::parse("etcd://localhost:2379")?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A claim is a key on a lease, as in etcd's `concurrency` package, whose value is its record; who holds
//! follows from the keys alone (`line.rs`). Why it is so: `docs/design/0005-etcd.md`.
//!
//! Which file to open to change …
//!
//! | what | file |
//! |---|---|
//! | who holds, who waits, and for whom | `line.rs` |
//! | which keys there are | `keys.rs`; what is stored of a claim: `record.rs` |
//! | how a claim comes in, waits, changes, leaves | `take.rs`, `wait.rs`, `change.rs`, `leave.rs` |
//! | how claims are renewed, and how a client learns of their end | `renew.rs`, `leases.rs` |
//! | what this client knows of its claims | `claims.rs` |
//! | how a connection is made, and made again | `dial.rs`, `link.rs`, `engine.rs`; what is asked of a server: `arrival.rs` |
//! | the two streams of a connection | `watching.rs`, `beats.rs` |
//! | what is said on the wire | `proto.rs`, `txn.rs`; how it is sent: `wire.rs` |
//! | how registers and fences are kept | `registers.rs`; the caller's own fenced transactions: `fenced_txn.rs` |

mod address;
mod arrival;
#[doc(hidden)]
pub mod bare;
mod beats;
mod change;
mod claims;
mod config;
mod dial;
mod engine;
mod error;
mod fenced_txn;
mod inspect;
mod keys;
mod leases;
mod leave;
mod line;
mod lingering;
mod link;
mod proto;
mod record;
mod registers;
mod renew;
mod take;
mod together;
mod txn;
mod wait;
mod watch;
mod watching;
mod wire;

pub use config::{EtcdConfig, Login, Tls};
pub use engine::{EtcdEngine, profile};
pub use fenced_txn::FencedTxn;
