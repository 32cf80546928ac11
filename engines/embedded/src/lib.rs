//! Palisade's embedded engine: processes of one host share a folder, and nothing has to be started.
//!
//! ```
//! # async fn example() -> palisade_core::Result<()> {
//! use palisade_embedded::{EmbeddedConfig, EmbeddedEngine};
//! let engine = EmbeddedEngine::open(EmbeddedConfig::new("/var/lib/shop/locks")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | in the folder | what it is |
//! |---|---|
//! | `FORMAT` | the version of this layout |
//! | `claims.db` | who holds and who waits; SQLite, unsynced, made anew after each boot: no holder outlives one |
//! | `registers.db` | registers and fences; SQLite, synced before a write is acknowledged |
//! | `tokens` | the number line that arrivals and tokens are drawn from, with a ceiling synced ahead |
//! | `write.lock`, `registers.lock` | file locks in front of the two databases, so that writers queue in the kernel |
//! | `sessions/<id>.lock` | locked while the session lives; the kernel lets go when its process ends |
//! | `sessions/<id>.sock` | where the session is told that it is its turn |
//!
//! Which file to open to change …
//!
//! | what | file |
//! |---|---|
//! | who comes in, who leaves, in which order | `ledger/` |
//! | what a waiter sees and whom it watches | `look.rs`, `wait.rs` |
//! | how a death is noticed | `session.rs`, `notice.rs` |
//! | how another process is told | `news.rs`, `wake.rs` |
//! | which thread decides | `shared.rs`, `worker.rs` |
//! | how the files are opened and checked | `open.rs`, `folder.rs`, `store.rs`, `database.rs`, `tokens.rs` |

mod config;
mod database;
mod engine;
mod error;
mod folder;
mod ledger;
mod look;
mod news;
mod notice;
mod open;
mod register_rows;
mod registers;
mod rows;
mod session;
mod shared;
mod store;
mod tokens;
mod wait;
mod wake;
mod watch;
mod worker;
mod write_lock;

pub use config::{EmbeddedConfig, Sync};
pub use engine::{EmbeddedEngine, profile};
