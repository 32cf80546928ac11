use std::net::SocketAddr;

use anyhow::Result;
use futures::FutureExt;

use super::{Local, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{Persistence, RedisOptions, RedisServer};

/// One Redis server that keeps every acknowledged write.
pub(super) const LOCAL: Local = Local { name: "redis", nodes: 1, start: |nodes, _| start(nodes).boxed() };

#[derive(Debug)]
struct Redis {
    address: SocketAddr,
    servers: Vec<Box<dyn Server>>,
    /// Why its clock cannot be shifted.
    true_clock: Option<String>,
}

async fn start(nodes: u32) -> Result<Box<dyn Target>> {
    if nodes != 1 {
        misuse!("local:redis is one server, not {nodes}; try local:redlock*{nodes} or local:redis+cluster");
    }
    let options =
        RedisOptions { persistence: Persistence::EveryWrite, clock: true, ..RedisOptions::default() };
    let (server, true_clock) = with_own_clock(options).await?;
    Ok(Box::new(Redis { address: server.address(), servers: vec![Box::new(server)], true_clock }))
}

/// Starts a server whose clock can be shifted; where that cannot be, one that goes by the true clock,
/// and says why.
pub(super) async fn with_own_clock(options: RedisOptions) -> Result<(RedisServer, Option<String>)> {
    let plain = RedisOptions { clock: false, ..options.clone() };
    match RedisServer::start(options).await {
        Ok(server) => Ok((server, None)),
        Err(problem) => match RedisServer::start(plain).await {
            Ok(server) => Ok((server, Some(format!("{problem:#}")))),
            // What ails both is not the clock.
            Err(_) => Err(problem),
        },
    }
}

impl Target for Redis {
    fn name(&self) -> String {
        "local:redis".to_owned()
    }

    fn url(&self, via: &[SocketAddr]) -> String {
        format!("redis://{}", via.first().unwrap_or(&self.address))
    }

    fn endpoints(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        self.true_clock.clone().filter(|_| fault == FaultKind::Clock)
    }

    fn servers(&self) -> &[Box<dyn Server>] {
        &self.servers
    }

    fn survives(&self) -> Survives {
        Survives::Kill
    }

    fn voids_exclusion(&self, fault: FaultKind) -> Option<String> {
        (fault == FaultKind::Clock).then(|| {
            "a single Redis ends claims by its wall clock: while that jumps, only the fence protects"
                .to_owned()
        })
    }
}

super::one_server!(RedisServer);
