use std::net::SocketAddr;

use anyhow::Result;
use futures::FutureExt;

use super::{Local, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{Persistence, RedisOptions, RedisServer, SentinelSet};

/// A primary, its replica, and three Sentinels.
pub(super) const LOCAL: Local =
    Local { name: "redis+sentinel", nodes: 1, start: |nodes, _, _| start(nodes).boxed() };

#[derive(Debug)]
struct Watched {
    sentinels: Vec<SocketAddr>,
    /// Kept for as long as the run lasts: nothing is done to it.
    _primary: RedisServer,
    /// The replica and the Sentinels.
    others: Vec<Box<dyn Server>>,
}

async fn start(nodes: u32) -> Result<Box<dyn Target>> {
    if nodes != 1 {
        misuse!("local:redis+sentinel is a primary, a replica and three Sentinels, not {nodes} nodes");
    }
    let options = RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() };
    let set = SentinelSet::start(options).await?;
    let sentinels = set.addresses();
    let mut servers = set.servers.into_iter();
    let primary = servers.next().ok_or_else(|| anyhow::anyhow!("a set without a primary"))?;
    let others = servers.chain(set.sentinels).map(|server| -> Box<dyn Server> { Box::new(server) }).collect();
    Ok(Box::new(Watched { sentinels, _primary: primary, others }))
}

impl Target for Watched {
    fn name(&self) -> String {
        "local:redis+sentinel".to_owned()
    }

    fn url(&self, _via: &[SocketAddr]) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(ToString::to_string).collect();
        format!("redis+sentinel://{}/{}", sentinels.join(","), SentinelSet::SERVICE)
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        match fault {
            FaultKind::Cut | FaultKind::Slow => Some(
                "Sentinels tell clients the true address of the primary, past any proxy; try local:redis"
                    .to_owned(),
            ),
            FaultKind::Clock => {
                Some("Sentinels time the servers by the same clock; try local:redis".to_owned())
            }
            FaultKind::Pause | FaultKind::Kill | FaultKind::Restart | FaultKind::Cancel => None,
        }
    }

    /// The replica and the Sentinels, one at a time. A failover is not done here: it may forget what
    /// was acknowledged last, registers included, and says so; a test does it with one holder at hand.
    fn servers(&self) -> &[Box<dyn Server>] {
        &self.others
    }

    fn survives(&self) -> Survives {
        Survives::Kill
    }

    fn at_once(&self) -> usize {
        1
    }
}
