use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::try_join_all;

use super::redis::server;
use super::{Local, Purpose, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::RedisOptions;

/// Independent Redis servers that vote.
pub(super) const LOCAL: Local =
    Local { name: "redlock", nodes: 3, start: |nodes, _, purpose| start(nodes, purpose).boxed() };

/// No claim may last longer: a server that lost its data does not vote for so long. Above every TTL of
/// a run that is not told otherwise, and short enough for the server to vote again within the run.
const LONGEST_TTL: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Redlock {
    addresses: Vec<SocketAddr>,
    servers: Vec<Box<dyn Server>>,
    /// Why their clocks cannot be shifted.
    true_clock: Option<String>,
}

async fn start(nodes: u32, purpose: Purpose) -> Result<Box<dyn Target>> {
    if !matches!(nodes, 3 | 5 | 7 | 9) {
        misuse!(
            "local:redlock*N starts 3, 5, 7 or 9 servers, not {nodes}: an even one more outlives no more"
        );
    }
    // Only by a clock of their own can they say that they have been up for long: else whoever uses them waits until they vote.
    let up_for = if purpose == Purpose::Faults { LONGEST_TTL * 2 } else { Duration::ZERO };
    let options = RedisOptions { up_for, ..RedisOptions::default() };
    let started = try_join_all((0..nodes).map(|_| server(options.clone(), purpose))).await?;
    if purpose == Purpose::Faults {
        let old_enough = LONGEST_TTL + Duration::from_secs(1);
        try_join_all(started.iter().map(|(server, _)| server.up_for(old_enough))).await?;
    }
    let addresses = started.iter().map(|(server, _)| server.address()).collect();
    let true_clock = started.iter().find_map(|(_, problem)| problem.clone());
    let servers = started.into_iter().map(|(server, _)| -> Box<dyn Server> { Box::new(server) }).collect();
    Ok(Box::new(Redlock { addresses, servers, true_clock }))
}

impl Target for Redlock {
    fn name(&self) -> String {
        format!("local:redlock*{}", self.addresses.len())
    }

    fn url(&self, via: &[SocketAddr]) -> String {
        let addresses = if via.is_empty() { &self.addresses } else { via };
        let mut url = String::from("redlock:");
        for (place, address) in addresses.iter().enumerate() {
            let _ = write!(url, "{}redis://{address}", if place == 0 { "" } else { "," });
        }
        let _ = write!(url, "?longest-ttl={}ms", LONGEST_TTL.as_millis());
        url
    }

    fn endpoints(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        self.true_clock.clone().filter(|_| fault == FaultKind::Clock)
    }

    fn servers(&self) -> &[Box<dyn Server>] {
        &self.servers
    }

    /// Kleppmann's case: who holds a bare majority has it no more when the clock of one of these nodes
    /// jumps, and does not know.
    fn voids_exclusion(&self, fault: FaultKind) -> Option<String> {
        (fault == FaultKind::Clock).then(|| {
            "nodes end claims by their wall clocks: when one jumps, a holder may have lost its majority, and only the fence protects"
                .to_owned()
        })
    }

    fn survives(&self) -> Survives {
        Survives::Wipe
    }

    /// A minority: what a quorum outlives.
    fn at_once(&self) -> usize {
        (self.servers.len() - 1) / 2
    }

    /// Claims that it forgot, or ended early, are over everywhere by then; and a server tells its
    /// age in whole seconds.
    fn recovery(&self) -> Duration {
        LONGEST_TTL + Duration::from_secs(1)
    }
}
