use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use futures::FutureExt;

use super::{Local, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{ClusterSet, Persistence, RedisOptions, RedisServer};

/// A Cluster of three masters that keep every acknowledged write.
pub(super) const LOCAL: Local =
    Local { name: "redis+cluster", nodes: 3, start: |nodes, _, _| start(nodes).boxed() };

#[derive(Debug)]
struct Cluster {
    addresses: Vec<SocketAddr>,
    masters: Vec<Box<dyn Server>>,
}

async fn start(nodes: u32) -> Result<Box<dyn Target>> {
    if nodes != 3 {
        misuse!("local:redis+cluster is three masters, not {nodes}");
    }
    let options = RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() };
    let set = Arc::new(ClusterSet::start(options).await?);
    let master = |place: usize| -> Box<dyn Server> { Box::new(Master { set: Arc::clone(&set), place }) };
    let masters = (0..set.servers.len()).map(master).collect();
    Ok(Box::new(Cluster { addresses: set.addresses(), masters }))
}

impl Target for Cluster {
    fn name(&self) -> String {
        "local:redis+cluster".to_owned()
    }

    fn url(&self, _via: &[SocketAddr]) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        match fault {
            FaultKind::Cut | FaultKind::Slow => Some(
                "the nodes of a Cluster tell clients their true addresses, past any proxy; try local:redis"
                    .to_owned(),
            ),
            FaultKind::Clock => {
                Some("the nodes of a Cluster time each other by the same clock; try local:redis".to_owned())
            }
            FaultKind::Pause | FaultKind::Kill | FaultKind::Restart | FaultKind::Cancel => None,
        }
    }

    fn servers(&self) -> &[Box<dyn Server>] {
        &self.masters
    }

    fn survives(&self) -> Survives {
        Survives::Kill
    }

    /// Two of three have to hear each other for any to serve.
    fn at_once(&self) -> usize {
        1
    }
}

/// One master of the Cluster, which is back only when all of the Cluster serves.
#[derive(Debug)]
struct Master {
    set: Arc<ClusterSet>,
    place: usize,
}

impl Master {
    fn server(&self) -> &RedisServer {
        &self.set.servers[self.place]
    }
}

#[async_trait]
impl Server for Master {
    fn name(&self) -> String {
        self.server().called()
    }

    async fn stop(&self) -> Result<()> {
        self.server().stop()
    }

    async fn go_on(&self) -> Result<()> {
        self.server().go_on()?;
        self.set.serves().await
    }

    async fn kill(&self) -> Result<()> {
        self.server().kill().await
    }

    async fn start(&self, wiped: bool) -> Result<()> {
        self.server().start_again(wiped).await?;
        self.set.serves().await
    }
}
