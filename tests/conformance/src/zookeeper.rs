//! Fixtures over real ZooKeeper servers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use palisade_core::{Engine, Error, ErrorKind};
use palisade_testkit::Fixture;
use palisade_testkit::servers::{ZooKeeperOptions, ZooKeeperServer, ZooKeeperSet};

/// A cluster of so many servers.
#[derive(Debug)]
pub struct ZooKeeper {
    name: String,
    set: ZooKeeperSet,
}

impl ZooKeeper {
    /// Starts it.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(name: &str, nodes: usize, options: ZooKeeperOptions) -> Result<Self> {
        Ok(Self { name: name.to_owned(), set: ZooKeeperSet::start(nodes, options).await? })
    }

    /// With more time than usual: some cases ask for ten thousand nodes, of servers in Java that share two processors.
    fn url_in(&self, namespace: &str) -> String {
        format!("zk://{}?namespace={namespace}&call-timeout=15s", self.set.hosts())
    }

    async fn crash(&self) -> Result<()> {
        for server in &self.set.servers {
            server.kill().await?;
        }
        ZooKeeperServer::start_with_others(&self.set.servers).await
    }
}

#[async_trait]
impl Fixture for ZooKeeper {
    fn name(&self) -> &str {
        &self.name
    }

    async fn connect(&self, namespace: &str) -> palisade_core::Result<Arc<dyn Engine>> {
        let url = self.url_in(&namespace.replace('/', "%2F"));
        Ok(Arc::clone(palisade::connect(&url).await?.engine()))
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(self.url_in(namespace))
    }

    /// Many ticks of these servers.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Sessions end at whole ticks.
    fn slack(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }

    async fn restart(&self) -> palisade_core::Result<()> {
        self.crash().await.map_err(|problem| {
            Error::new(ErrorKind::Unavailable, format!("a server was not restarted: {problem:#}"))
        })
    }
}
