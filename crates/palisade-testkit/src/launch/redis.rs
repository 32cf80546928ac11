use std::net::SocketAddr;

use anyhow::Result;
use futures::FutureExt;

use super::{Local, MEASURED, Purpose, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{Persistence, RedisOptions, RedisServer};

/// One Redis server that keeps every acknowledged write.
pub(super) const LOCAL: Local =
    Local { name: "redis", nodes: 1, start: |nodes, _, purpose| start(nodes, purpose).boxed() };

#[derive(Debug)]
struct Redis {
    address: SocketAddr,
    servers: Vec<Box<dyn Server>>,
    /// Why its clock cannot be shifted.
    true_clock: Option<String>,
}

async fn start(nodes: u32, purpose: Purpose) -> Result<Box<dyn Target>> {
    if nodes != 1 {
        misuse!("local:redis is one server, not {nodes}; try local:redlock*{nodes} or local:redis+cluster");
    }
    let (server, true_clock) = server(RedisOptions::default(), purpose).await?;
    Ok(Box::new(Redis { address: server.address(), servers: vec![Box::new(server)], true_clock }))
}

/// Starts a server; for faults one that keeps every acknowledged write and whose clock can be shifted. Where that cannot be,
/// one that goes by the true clock, and says why.
pub(super) async fn server(options: RedisOptions, purpose: Purpose) -> Result<(RedisServer, Option<String>)> {
    if purpose == Purpose::Speed {
        return Ok((RedisServer::start(options).await?, Some(MEASURED.to_owned())));
    }
    let plain = RedisOptions { persistence: Persistence::EveryWrite, ..options };
    match RedisServer::start(RedisOptions { clock: true, ..plain.clone() }).await {
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
