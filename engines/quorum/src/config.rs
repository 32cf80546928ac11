use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use palisade_core::{Engine, Result};

/// Opens a connection to one node, again whenever the last one could not be made.
pub type OpenNode = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Engine>>> + Send + Sync>;

/// One of the engines that vote.
#[derive(Clone)]
pub struct Node {
    /// What to call it in messages; never a secret.
    pub name: String,
    /// How to reach it.
    pub open: OpenNode,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Which nodes vote, and how long they may take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QuorumConfig {
    /// The nodes, an odd number of them; each fails on its own.
    pub nodes: Vec<Node>,
    /// How long one node may take to answer before the others are believed without it; far below
    /// any TTL.
    pub node_timeout: Duration,
    /// The fixed part of the drift margin.
    pub drift: Duration,
    /// The part of the drift margin that grows with the TTL, in thousandths.
    pub drift_per_mille: u32,
    /// The longest TTL any client of these nodes uses. A node that may have forgotten its grants
    /// does not vote for so long; a claim with a longer TTL is refused.
    pub longest_ttl: Duration,
    /// What the tokens of this quorum are told apart by.
    pub source: String,
}

impl QuorumConfig {
    /// These nodes with everything else at its default: 50 ms per node, a drift of 2 ms and 1 %,
    /// no TTL above 30 s.
    pub fn new(nodes: Vec<Node>) -> Self {
        Self {
            nodes,
            node_timeout: Duration::from_millis(50),
            drift: Duration::from_millis(2),
            drift_per_mille: 10,
            longest_ttl: Duration::from_secs(30),
            source: "redlock".to_owned(),
        }
    }
}
