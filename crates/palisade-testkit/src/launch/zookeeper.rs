use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use futures::FutureExt;

use super::{Local, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{ZooKeeperOptions, ZooKeeperServer, ZooKeeperSet, newer_zookeeper};

/// A cluster of the newest ZooKeeper that is there.
pub(super) const LOCAL: Local = Local {
    name: "zk",
    nodes: 3,
    start: |nodes, _, _| {
        let debian = ZooKeeperOptions::default();
        let classes = newer_zookeeper().unwrap_or_else(|_| debian.classes.clone());
        start("zk", nodes, ZooKeeperOptions { classes, ..debian }).boxed()
    },
};

/// A cluster of the ZooKeeper that the system brings.
pub(super) const SYSTEM: Local = Local {
    name: "zk-system",
    nodes: 3,
    start: |nodes, _, _| start("zk-system", nodes, ZooKeeperOptions::default()).boxed(),
};

#[derive(Debug)]
struct ZooKeeper {
    name: &'static str,
    addresses: Vec<SocketAddr>,
    servers: Vec<Box<dyn Server>>,
}

async fn start(name: &'static str, nodes: u32, options: ZooKeeperOptions) -> Result<Box<dyn Target>> {
    if nodes.is_multiple_of(2) {
        misuse!(
            "local:{name}*N starts 1, 3, 5, 7 or 9 servers, not {nodes}: an even one more outlives no more"
        );
    }
    let set = Arc::new(ZooKeeperSet::start(nodes as usize, options).await?);
    let member = |place: usize| -> Box<dyn Server> { Box::new(Member { set: Arc::clone(&set), place }) };
    let servers = (0..set.servers.len()).map(member).collect();
    Ok(Box::new(ZooKeeper { name, addresses: set.addresses(), servers }))
}

impl Target for ZooKeeper {
    fn name(&self) -> String {
        format!("local:{}*{}", self.name, self.addresses.len())
    }

    fn url(&self, via: &[SocketAddr]) -> String {
        let addresses = if via.is_empty() { &self.addresses } else { via };
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("zk://{}", addresses.join(","))
    }

    fn endpoints(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        (fault == FaultKind::Clock).then(|| {
            "ZooKeeper times sessions by a clock that nobody can step; no server's wall clock counts"
                .to_owned()
        })
    }

    fn servers(&self) -> &[Box<dyn Server>] {
        &self.servers
    }

    fn survives(&self) -> Survives {
        Survives::Kill
    }

    /// A minority, or the only one.
    fn at_once(&self) -> usize {
        ((self.servers.len() - 1) / 2).max(1)
    }

    /// Sessions end at whole ticks, and a new leader gives all of them their whole timeout again.
    fn lateness(&self, ttl: Duration) -> Duration {
        ttl + Duration::from_secs(1)
    }
}

/// One server of the cluster.
#[derive(Debug)]
struct Member {
    set: Arc<ZooKeeperSet>,
    place: usize,
}

impl Member {
    fn server(&self) -> &ZooKeeperServer {
        &self.set.servers[self.place]
    }
}

#[async_trait]
impl Server for Member {
    fn name(&self) -> String {
        self.server().called()
    }

    async fn stop(&self) -> Result<()> {
        self.server().stop()
    }

    async fn go_on(&self) -> Result<()> {
        self.server().go_on()?;
        self.server().serves().await
    }

    async fn kill(&self) -> Result<()> {
        self.server().kill().await
    }

    async fn start(&self, wiped: bool) -> Result<()> {
        anyhow::ensure!(!wiped, "a server of ZooKeeper that lost its data may vote for a state without it");
        self.server().start_again().await
    }
}
