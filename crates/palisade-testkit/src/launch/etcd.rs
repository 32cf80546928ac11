use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use futures::FutureExt;

use super::{Local, Server, Survives, Target};
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::servers::{EtcdOptions, EtcdServer, EtcdSet, newer_etcd};

/// A cluster of the newest etcd that is there.
pub(super) const LOCAL: Local = Local {
    name: "etcd",
    nodes: 3,
    start: |nodes, _, _| start("etcd", nodes, newer_etcd().unwrap_or_else(|_| DEBIAN.into())).boxed(),
};

/// A cluster of the etcd that the system brings.
pub(super) const SYSTEM: Local = Local {
    name: "etcd-system",
    nodes: 3,
    start: |nodes, _, _| start("etcd-system", nodes, DEBIAN.into()).boxed(),
};

const DEBIAN: &str = "etcd";

#[derive(Debug)]
struct Etcd {
    name: &'static str,
    addresses: Vec<SocketAddr>,
    servers: Vec<Box<dyn Server>>,
    /// Whether it is a version that may end locks before their time.
    ends_live_leases: bool,
}

async fn start(name: &'static str, nodes: u32, program: PathBuf) -> Result<Box<dyn Target>> {
    if nodes.is_multiple_of(2) {
        misuse!(
            "local:{name}*N starts 1, 3, 5, 7 or 9 servers, not {nodes}: an even one more outlives no more"
        );
    }
    let ends_live_leases = program.as_os_str() == DEBIAN;
    let options = EtcdOptions { program, cuttable: nodes > 1, ..EtcdOptions::default() };
    let set = Arc::new(EtcdSet::start(nodes as usize, options).await?);
    let member = |place: usize| -> Box<dyn Server> { Box::new(Member { set: Arc::clone(&set), place }) };
    let servers = (0..set.servers.len()).map(member).collect();
    Ok(Box::new(Etcd { name, addresses: set.addresses(), servers, ends_live_leases }))
}

impl Target for Etcd {
    fn name(&self) -> String {
        format!("local:{}*{}", self.name, self.addresses.len())
    }

    fn url(&self, via: &[SocketAddr]) -> String {
        let addresses = if via.is_empty() { &self.addresses } else { via };
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("etcd://{}", addresses.join(","))
    }

    fn endpoints(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        (fault == FaultKind::Clock).then(|| {
            "etcd times leases by a clock that nobody can step; no server's wall clock counts".to_owned()
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

    /// A dead holder's lease may have run for nearly its TTL when the leader ends. The new one gives all leases
    /// their whole TTL again and an election timeout on top (etcd's `lessor.Promote`; half a second here), and looks
    /// for those that ran out every half second: two TTLs and a second. While a server is struck the clock stands, so
    /// that the election itself is not in it. `tests/etcd` shows it (`a_new_leader_gives_leases_their_time_again`).
    fn lateness(&self, ttl: Duration) -> Duration {
        ttl + Duration::from_secs(1)
    }

    fn voids_exclusion(&self, fault: FaultKind) -> Option<String> {
        (self.ends_live_leases && fault == FaultKind::Restart).then(|| {
            "etcd before 3.4.31 and 3.5.13 may end leases that are renewed, after a leader was stopped (etcd#15247): only the fence protects"
                .to_owned()
        })
    }
}

/// One server of the cluster.
#[derive(Debug)]
struct Member {
    set: Arc<EtcdSet>,
    place: usize,
}

impl Member {
    fn server(&self) -> &EtcdServer {
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

    fn can_be_cut_off(&self) -> bool {
        self.set.servers.len() > 1
    }

    async fn cut_off(&self) -> Result<()> {
        self.set.cut_off(self.place)
    }

    async fn rejoin(&self) -> Result<()> {
        self.set.rejoin(self.place).await
    }

    async fn start(&self, wiped: bool) -> Result<()> {
        anyhow::ensure!(!wiped, "a server of etcd that lost its data cannot go on as the one it was");
        self.server().start_again().await
    }
}
