//! Engines under test: those that the harness starts itself (`local:…`), and those that a user names.
//!
//! An engine adds one file here and one row to the table `LOCAL`.

/// A server that is one process, whose own methods do what is asked of it.
macro_rules! one_server {
    ($server:ty) => {
        #[async_trait::async_trait]
        impl super::Server for $server {
            fn name(&self) -> String {
                self.called()
            }

            async fn stop(&self) -> anyhow::Result<()> {
                Self::stop(self)
            }

            async fn go_on(&self) -> anyhow::Result<()> {
                Self::go_on(self)
            }

            async fn kill(&self) -> anyhow::Result<()> {
                Self::kill(self).await
            }

            async fn start(&self, wiped: bool) -> anyhow::Result<()> {
                self.start_again(wiped).await
            }

            async fn shift_clock(&self, seconds: i64) -> anyhow::Result<()> {
                Self::shift_clock(self, seconds)
            }
        }
    };
}
use one_server;

mod etcd;
mod file;
mod given;
mod mariadb;
mod memory;
mod postgres;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod redlock;
mod zookeeper;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::HelperProgram;
use crate::history::FaultKind;
use crate::misuse::misuse;

/// An engine under test: where it is found, and what can be done to it.
#[async_trait]
pub trait Target: Send + Sync + fmt::Debug {
    /// What to call it, without secrets.
    fn name(&self) -> String;

    /// The URL for a client that reaches the servers of [`Target::endpoints`] at `via` instead, in
    /// the same order; for an empty `via`, directly.
    fn url(&self, via: &[SocketAddr]) -> String;

    /// Where its servers listen, for a proxy to stand in between.
    fn endpoints(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Whether clients in several processes meet at it.
    fn crosses_processes(&self) -> bool {
        true
    }

    /// Why a fault cannot be done to it; `None` if it can.
    fn refuses(&self, fault: FaultKind) -> Option<String>;

    /// The servers that the harness started and may kill.
    fn servers(&self) -> &[Box<dyn Server>] {
        &[]
    }

    /// The worst that can be done to one of its servers without loss of what was granted and
    /// acknowledged, by what the engine promises.
    fn survives(&self) -> Survives {
        Survives::Stop
    }

    /// To how many of its servers something may be done at one time.
    fn at_once(&self) -> usize {
        self.servers().len()
    }

    /// For how long a server that was wiped, or whose clock was put right again, still counts as one
    /// that something is done to.
    fn recovery(&self) -> Duration {
        Duration::ZERO
    }

    /// How late it may be, by what it promises, to let the next one in after a TTL has passed.
    fn lateness(&self, _ttl: Duration) -> Duration {
        Duration::ZERO
    }

    /// Why a fault breaks what the engine's mutual exclusion rests on, so that holders may overlap
    /// and only what goes through the fence is safe; `None` if exclusion must hold.
    fn voids_exclusion(&self, _fault: FaultKind) -> Option<String> {
        None
    }

    /// What a finished run left behind that no verb of the contract shows, in words.
    async fn left_behind(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// What can be done to a server, from mild to severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survives {
    /// It is stopped for a while.
    Stop,
    /// It is killed and started again with its data.
    Kill,
    /// It is killed and started again with nothing: what a quorum outlives.
    Wipe,
}

/// A server of an engine under test.
#[async_trait]
pub trait Server: Send + Sync + fmt::Debug {
    /// What to call it.
    fn name(&self) -> String;

    /// Stops it (SIGSTOP).
    async fn stop(&self) -> Result<()>;

    /// Lets it go on (SIGCONT).
    async fn go_on(&self) -> Result<()>;

    /// Kills it (kill −9).
    async fn kill(&self) -> Result<()>;

    /// Starts it again at the same address, with what its disk holds; with nothing if `wiped`.
    async fn start(&self, wiped: bool) -> Result<()>;

    /// Whether it can be cut off from the other servers while clients still reach it.
    fn can_be_cut_off(&self) -> bool {
        false
    }

    /// Cuts it off from the other servers.
    async fn cut_off(&self) -> Result<()> {
        anyhow::bail!("{} cannot be cut off from the others", self.name())
    }

    /// Ends that.
    async fn rejoin(&self) -> Result<()> {
        anyhow::bail!("{} cannot be cut off from the others", self.name())
    }

    /// Sets its wall clock so many seconds ahead of the true time, or behind it.
    async fn shift_clock(&self, seconds: i64) -> Result<()> {
        anyhow::bail!("the clock of {} cannot be shifted by {seconds} s", self.name())
    }
}

/// What an engine is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Faults: its clocks can be shifted, and it keeps what it must to outlive them.
    Faults,
    /// Figures: without what only faults need.
    Speed,
}

/// Why a server that was started for its speed has no clock to shift.
const MEASURED: &str = "it was started to be measured";

type Starting = BoxFuture<'static, Result<Box<dyn Target>>>;

/// An engine that the harness can start.
struct Local {
    /// Its name after `local:`.
    name: &'static str,
    /// How many nodes there are if nobody says how many.
    nodes: u32,
    /// Starts so many nodes of it.
    start: fn(u32, &HelperProgram, Purpose) -> Starting,
}

/// Why two may hold a session lock at once.
const SESSION_LOCKS_END_FIRST: &str = "a session lock is free as soon as its connection ends, which the holder may hear of later: only the fence protects";

/// All engines that the harness can start. Adding one is adding a row.
const LOCAL: &[Local] = &[
    file::LOCAL,
    memory::LOCAL,
    redis::LOCAL,
    redis_sentinel::LOCAL,
    redis_cluster::LOCAL,
    redlock::LOCAL,
    etcd::LOCAL,
    etcd::SYSTEM,
    zookeeper::LOCAL,
    zookeeper::SYSTEM,
    postgres::LOCAL,
    postgres::SYNCED,
    mariadb::LOCAL,
    mariadb::SYNCED,
    postgres::ADVISORY,
    mariadb::ADVISORY,
    #[cfg(feature = "planted-bugs")]
    memory::FORGETFUL,
];

/// Starts `local:NAME` or `local:NAME*NODES`; any other URL is taken as it is.
///
/// `helper` becomes the servers that are ours. `purpose` says what a single Redis, the nodes of a quorum, PostgreSQL and MariaDB are
/// prepared for; others are the same for both. What was started ends with the returned value.
///
/// # Errors
/// If there is no such engine, naming those there are, or it cannot be started.
///
/// # Cancel safety
/// Safe: what was started by then ends with the future.
pub async fn launch(url: &str, helper: &HelperProgram, purpose: Purpose) -> Result<Box<dyn Target>> {
    let Some(local) = url.strip_prefix("local:") else {
        return given::target(url);
    };
    let (name, nodes) = match local.split_once('*') {
        None => (local, None),
        Some((name, nodes)) => match nodes.parse() {
            Ok(nodes @ 1..=9) => (name, Some(nodes)),
            _ => misuse!("local:{name}*N starts 1 to 9 nodes, not {nodes:?}"),
        },
    };
    match LOCAL.iter().find(|local| local.name == name) {
        Some(local) => (local.start)(nodes.unwrap_or(local.nodes), helper, purpose).await,
        None => misuse!("there is no local:{name}; there are {}", local_names().join(", ")),
    }
}

/// All engines that the harness can start, as `local:NAME`.
pub fn local_names() -> Vec<String> {
    LOCAL.iter().map(|local| format!("local:{}", local.name)).collect()
}

/// Why faults of networks and servers cannot be done to an engine that has neither.
fn no_server(fault: FaultKind, engine: &str) -> Option<String> {
    match fault {
        FaultKind::Pause | FaultKind::Kill | FaultKind::Cancel => None,
        FaultKind::Cut | FaultKind::Slow => {
            Some(format!("{engine} has no network between workers and engine"))
        }
        FaultKind::Restart => Some(format!("{engine} has no server; `kill` ends the processes there are")),
        FaultKind::Clock => Some(format!(
            "{engine} goes by the kernel's boot-time clock, which nobody can step; no server's wall clock counts"
        )),
    }
}
