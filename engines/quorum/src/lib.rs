//! Redlock: a quorum over any N engines, with a fencing token of its own.
//!
//! | to … | look at |
//! |---|---|
//! | see what is promised | [`profile`], `docs/engines/redlock.md` |
//! | see why tokens never fall | `token.rs` |
//! | see how rivals are kept from splitting the vote | `drive/` |
//! | see what is kept of a claim | `ballot.rs`, `attempt.rs` |

mod attempt;
mod ballot;
mod config;
mod core;
mod drive;
mod engine;
mod error;
mod evict;
mod limit;
mod merge;
mod open;
mod profile;
mod release;
mod renew;
mod seed;
mod together;
mod token;
mod voter;
mod watch;

pub use config::{Node, OpenNode, QuorumConfig};
pub use engine::QuorumEngine;
pub use profile::profile;
