//! Palisade's ZooKeeper engine: locks that Curator and kazoo understand.
//!
//! ```no_run
//! # async fn example() -> palisade_core::Result<()> {
//! use palisade_zookeeper::{ZooKeeperConfig, ZooKeeperEngine};
//! let engine = ZooKeeperEngine::open(ZooKeeperConfig::parse("zk://localhost:2181")?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A claim is an ephemeral, numbered node in its resource's folder, as Curator's recipes have it; who holds
//! follows from the nodes alone (`line.rs`). Why it is so: `docs/design/0006-zookeeper.md`.
//!
//! Which file to open to change …
//!
//! | what | file |
//! |---|---|
//! | who holds, who waits, and for whom | `line.rs` |
//! | which nodes there are | `keys.rs`, `folder.rs`; what is stored of a claim: `record.rs` |
//! | how a claim comes in, waits, changes, leaves | `take.rs`, `wait.rs`, `change.rs`, `leave.rs` |
//! | how claims are renewed, and how a client learns of their end | `renew.rs`, `news.rs` |
//! | until when a session is known to live | `life.rs` |
//! | what this client knows of its claims | `claims.rs` |
//! | how sessions are made, and kept | `sessions.rs`, `session.rs`; what is asked of a server: `arrival.rs` |
//! | how a connection is made, and used | `dial.rs`, `greet.rs`, `sasl.rs`, `conn.rs` |
//! | what is said on the wire | `proto.rs`, `jute.rs` |
//! | how registers and fences are kept | `registers.rs`; the caller's own fenced transactions: `fenced_multi.rs` |

mod address;
mod arrival;
#[doc(hidden)]
pub mod bare;
mod change;
mod claims;
mod config;
mod conn;
mod dial;
mod engine;
mod error;
mod fenced_multi;
mod folder;
mod greet;
mod inspect;
mod jute;
mod keys;
mod leave;
mod life;
mod line;
mod news;
mod proto;
mod record;
mod registers;
mod renew;
mod sasl;
mod session;
mod sessions;
mod take;
mod wait;
mod watch;

pub use config::{Acl, Auth, Dialect, Login, Tls, ZooKeeperConfig};
pub use engine::{ZooKeeperEngine, profile};
pub use fenced_multi::{FencedMulti, Opening};
