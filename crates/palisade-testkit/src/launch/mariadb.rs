use std::net::SocketAddr;

use anyhow::Result;
use futures::FutureExt;

use super::{Local, MEASURED, Purpose, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{MariaDbOptions, MariaDbServer};

/// One MariaDB server.
pub(super) const LOCAL: Local = Local {
    name: "mariadb",
    nodes: 1,
    start: |nodes, _, purpose| start("local:mariadb", nodes, purpose, false, "").boxed(),
};

/// One that waits for its disk.
pub(super) const SYNCED: Local = Local {
    name: "mariadb-synced",
    nodes: 1,
    start: |nodes, _, purpose| start("local:mariadb-synced", nodes, purpose, true, "").boxed(),
};

/// One whose session locks decide.
pub(super) const ADVISORY: Local = Local {
    name: "mariadb-advisory",
    nodes: 1,
    start: |nodes, _, purpose| {
        start("local:mariadb-advisory", nodes, purpose, false, "?mode=advisory").boxed()
    },
};

#[derive(Debug)]
struct MariaDb {
    name: &'static str,
    address: SocketAddr,
    /// The options of its URL, from the question mark on.
    options: &'static str,
    servers: Vec<Box<dyn Server>>,
    /// Why its clock cannot be shifted.
    true_clock: Option<String>,
}

async fn start(
    name: &'static str,
    nodes: u32,
    purpose: Purpose,
    fsync: bool,
    options: &'static str,
) -> Result<Box<dyn Target>> {
    if nodes != 1 {
        misuse!("{name} is one server, not {nodes}");
    }
    let how = MariaDbOptions { fsync, ..MariaDbOptions::default() };
    let (server, true_clock) = server(how, purpose).await?;
    let address = server.address();
    Ok(Box::new(MariaDb { name, address, options, servers: vec![Box::new(server)], true_clock }))
}

/// Starts a server; for faults one whose clock can be shifted. Where that cannot be, one that goes by the true clock,
/// and says why.
async fn server(options: MariaDbOptions, purpose: Purpose) -> Result<(MariaDbServer, Option<String>)> {
    if purpose == Purpose::Speed {
        return Ok((MariaDbServer::start(options).await?, Some(MEASURED.to_owned())));
    }
    match MariaDbServer::start(MariaDbOptions { clock: true, ..options.clone() }).await {
        Ok(server) => Ok((server, None)),
        Err(problem) => match MariaDbServer::start(options).await {
            Ok(server) => Ok((server, Some(format!("{problem:#}")))),
            // What ails both is not the clock.
            Err(_) => Err(problem),
        },
    }
}

impl MariaDb {
    fn holds_sessions(&self) -> bool {
        self.options.contains("mode=advisory")
    }
}

impl Target for MariaDb {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn url(&self, via: &[SocketAddr]) -> String {
        format!("mysql://root@{}/palisade{}", via.first().unwrap_or(&self.address), self.options)
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
        if self.holds_sessions() { Survives::Stop } else { Survives::Kill }
    }

    fn voids_exclusion(&self, fault: FaultKind) -> Option<String> {
        if self.holds_sessions() && matches!(fault, FaultKind::Cut | FaultKind::Clock) {
            return Some(super::SESSION_LOCKS_END_FIRST.to_owned());
        }
        (fault == FaultKind::Clock).then(|| {
            "a single MariaDB ends claims by its wall clock: while that jumps, only the fence protects"
                .to_owned()
        })
    }
}

super::one_server!(MariaDbServer);
