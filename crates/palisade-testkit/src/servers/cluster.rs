use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;

use super::redis::{RedisOptions, RedisServer};
use crate::bounded::eventually;

/// A Cluster of three masters, each with a third of the slots and without replicas.
#[derive(Debug)]
pub struct ClusterSet {
    /// The masters.
    pub servers: Vec<RedisServer>,
}

impl ClusterSet {
    /// A node that was started waits for two seconds before it serves.
    const PATIENCE: Duration = Duration::from_secs(30);
    const SLOTS: [(&'static str, &'static str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

    /// Starts the masters, and waits until all serve.
    ///
    /// # Errors
    /// One does not come up.
    pub async fn start(options: RedisOptions) -> Result<Self> {
        let mut options = options;
        // A node that is stopped for seconds is no reason for the others to stop serving.
        let settings = "--cluster-enabled yes --cluster-announce-ip 127.0.0.1 --cluster-node-timeout 15000 \
                        --cluster-require-full-coverage no";
        options.args.extend(settings.split_whitespace().map(str::to_owned));
        let servers = try_join_all((0..3).map(|_| RedisServer::start(options.clone()))).await?;
        let set = Self { servers };
        for ((place, server), (first, last)) in set.servers.iter().enumerate().zip(Self::SLOTS) {
            server.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]).await?;
            server.ask(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await?;
            let port = set.servers[0].address().port().to_string();
            server.ask(&["CLUSTER", "MEET", "127.0.0.1", &port]).await?;
        }
        set.serves().await?;
        Ok(set)
    }

    /// Where its nodes listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(RedisServer::address).collect()
    }

    /// Waits until every node says that all slots are served.
    ///
    /// # Errors
    /// They do not say so in time.
    pub async fn serves(&self) -> Result<()> {
        let wanted = [("cluster_state", "ok"), ("cluster_slots_ok", "16384"), ("cluster_known_nodes", "3")];
        eventually(Self::PATIENCE, "a Cluster that serves", async || {
            for server in &self.servers {
                let info = server.ask(&["CLUSTER", "INFO"]).await?;
                if wanted.iter().any(|(name, value)| info.field(name) != Some(value)) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await
    }
}
