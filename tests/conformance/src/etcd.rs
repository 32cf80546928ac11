//! Fixtures over real etcd servers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use palisade_core::{Engine, Error, ErrorKind};
use palisade_testkit::Fixture;
use palisade_testkit::servers::{EtcdOptions, EtcdServer, EtcdSet};

/// A cluster of so many servers.
#[derive(Debug)]
pub struct Etcd {
    name: String,
    set: EtcdSet,
}

impl Etcd {
    /// Starts it.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(name: &str, nodes: usize, options: EtcdOptions) -> Result<Self> {
        Ok(Self { name: name.to_owned(), set: EtcdSet::start(nodes, options).await? })
    }

    async fn crash(&self) -> Result<()> {
        for server in &self.set.servers {
            server.kill().await?;
        }
        EtcdServer::start_with_others(&self.set.servers).await
    }
}

#[async_trait]
impl Fixture for Etcd {
    fn name(&self) -> &str {
        &self.name
    }

    async fn connect(&self, namespace: &str) -> palisade_core::Result<Arc<dyn Engine>> {
        let url = format!("etcd://{}?namespace={}", self.set.hosts(), namespace.replace('/', "%2F"));
        Ok(Arc::clone(palisade::connect(&url).await?.engine()))
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(format!("etcd://{}?namespace={namespace}", self.set.hosts()))
    }

    /// etcd counts leases in whole seconds, and these servers take one.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// It looks for leases that have run out twice a second, and then has them agreed upon.
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
