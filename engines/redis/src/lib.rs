//! Palisade's Redis engine: one server, the primary of a Sentinel service, or a Cluster.
//!
//! ```no_run
//! # async fn example() -> palisade_core::Result<()> {
//! use palisade_redis::{RedisConfig, RedisEngine};
//! let engine = RedisEngine::open(RedisConfig::parse("redis://localhost")?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! An exclusive lock is the plain key that everyone uses, so that other clients exclude ours and ours
//! exclude theirs. Beside it stand the queue, the records and the tokens (`keys.rs`); whatever decides
//! does so in one script (`scripts/*.lua`).
//!
//! Which file to open to change …
//!
//! | what | file |
//! |---|---|
//! | who comes in, who leaves, in which order | `scripts/ledger.lua` and the script of the verb |
//! | which keys there are | `keys.rs`, `slot.rs` |
//! | what is stored of a claim | `record.rs` |
//! | how a connection is made, and made again | `dial.rs`, `link.rs`; what is asked of a server: `arrival.rs`; why there is none, and what to do: `refusal.rs` |
//! | what this client knows of its claims | `claims.rs`; how it hears of them: `news.rs` |
//! | what a verb asks and what the answer means | `verbs.rs` |
//! | how a claim waits | `wait.rs`, behind other clients' locks `foreign.rs` |
//! | how registers and fences are kept | `registers.rs`, `scripts/fence.lua`, `scripts/register_*.lua` |
//! | the caller's own fenced scripts | `fenced_script.rs` |

mod address;
mod arrival;
mod bare;
mod claims;
mod config;
mod counter;
mod dial;
mod engine;
mod error;
mod fenced_script;
mod foreign;
mod frame;
mod here;
mod inspect;
mod keys;
mod link;
mod news;
mod record;
mod refusal;
mod registers;
mod reply;
mod script;
mod slot;
mod together;
mod verbs;
mod wait;
mod watch;
mod wire;

pub use address::HostPort;
pub use config::{Dialect, KeyPattern, Login, RedisConfig, Servers, Tls};
pub use engine::{RedisEngine, profile};
pub use fenced_script::{FencedScript, Stale};
