use std::net::SocketAddr;

use anyhow::Result;
use futures::FutureExt;

use super::{Local, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{MariaDbOptions, MariaDbServer};

/// One MariaDB server.
pub(super) const LOCAL: Local =
    Local { name: "mariadb", nodes: 1, start: |nodes, _| start("local:mariadb", nodes, false, "").boxed() };

/// One that waits for its disk.
pub(super) const SYNCED: Local = Local {
    name: "mariadb-synced",
    nodes: 1,
    start: |nodes, _| start("local:mariadb-synced", nodes, true, "").boxed(),
};

/// One whose session locks decide.
pub(super) const ADVISORY: Local = Local {
    name: "mariadb-advisory",
    nodes: 1,
    start: |nodes, _| start("local:mariadb-advisory", nodes, false, "?mode=advisory").boxed(),
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
    fsync: bool,
    options: &'static str,
) -> Result<Box<dyn Target>> {
    if nodes != 1 {
        misuse!("{name} is one server, not {nodes}");
    }
    let how = MariaDbOptions { fsync, ..MariaDbOptions::default() };
    let (server, true_clock) = match MariaDbServer::start(MariaDbOptions { clock: true, ..how.clone() }).await
    {
        Ok(server) => (server, None),
        // Without a clock of its own; what ails both is not the clock.
        Err(problem) => match MariaDbServer::start(how).await {
            Ok(server) => (server, Some(format!("{problem:#}"))),
            Err(_) => return Err(problem),
        },
    };
    let address = server.address();
    Ok(Box::new(MariaDb { name, address, options, servers: vec![Box::new(server)], true_clock }))
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
