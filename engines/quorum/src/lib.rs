//! Redlock: a quorum over any N engines, with a fencing token of its own.

mod config;

pub use config::{Node, OpenNode, QuorumConfig};
mod engine;
pub use engine::{QuorumEngine, profile};
