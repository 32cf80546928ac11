use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;

use super::redis::{RedisOptions, RedisServer};
use crate::bounded::{bounded, eventually};

/// A primary, its replica, and three Sentinels that watch over them.
#[derive(Debug)]
pub struct SentinelSet {
    /// The first is the primary, until a failover.
    pub servers: Vec<RedisServer>,
    /// Two of them decide.
    pub sentinels: Vec<RedisServer>,
}

impl SentinelSet {
    /// What the Sentinels call the service.
    pub const SERVICE: &'static str = "mymaster";

    /// A failover takes one to two seconds; a machine under load takes its time.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Starts them, and waits until all know each other. The replica is started like the primary.
    ///
    /// # Errors
    /// One of them does not come up.
    pub async fn start(options: RedisOptions) -> Result<Self> {
        let program = options.program.clone();
        let servers = bounded(Self::PATIENCE, "the start of primary and replica", pair(options)).await??;
        // After the replica is known to the primary: a Sentinel asks only every now and then.
        let watched = servers[0].address();
        let sentinels = try_join_all((0..3).map(|_| sentinel(program.clone(), watched))).await?;
        let set = Self { servers, sentinels };
        set.settled().await?;
        Ok(set)
    }

    /// Waits until every Sentinel knows the other two, and sees a primary with a replica that follows it.
    /// A failover before that may be undone by a Sentinel that has not heard of the last one.
    ///
    /// # Errors
    /// They do not get that far in time.
    pub async fn settled(&self) -> Result<()> {
        let primary = [("num-other-sentinels", "2"), ("num-slaves", "1"), ("flags", "master")];
        let replica = [("flags", "slave"), ("role-reported", "slave"), ("master-link-status", "ok")];
        eventually(Self::PATIENCE, "the agreement of the Sentinels", async || {
            for sentinel in &self.sentinels {
                let known = sentinel.ask(&["SENTINEL", "MASTER", Self::SERVICE]).await?;
                let replicas = sentinel.ask(&["SENTINEL", "REPLICAS", Self::SERVICE]).await?;
                let [follower] = replicas.list() else { return Ok(None) };
                if !known.has(&primary) || !follower.has(&replica) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await
    }

    /// Where the Sentinels listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(RedisServer::address).collect()
    }

    /// The server that the Sentinels call the primary.
    ///
    /// # Errors
    /// The first Sentinel does not answer, or names a server that is none of ours.
    pub async fn primary(&self) -> Result<&RedisServer> {
        let address = said_by(&self.sentinels[0]).await?;
        let found = self.servers.iter().find(|server| server.address() == address);
        found.with_context(|| format!("the Sentinels name {address}, which is none of theirs"))
    }

    /// Waits until the replica has all that was written so far: what it lacks, a failover forgets.
    ///
    /// # Errors
    /// It does not get that far in time.
    pub async fn replicated(&self) -> Result<()> {
        let primary = self.primary().await?;
        eventually(Self::PATIENCE, "a copy to the replica", async || {
            let info = primary.ask(&["INFO", "replication"]).await?;
            let written = format!("offset={},", info.field("master_repl_offset").unwrap_or_default());
            Ok(info.field("slave0").is_some_and(|replica| replica.contains(&written)).then_some(()))
        })
        .await
    }

    /// Asks for a failover although nothing is wrong, and returns the new primary once there is one.
    ///
    /// # Errors
    /// There is no failover in time.
    pub async fn fail_over(&self) -> Result<&RedisServer> {
        self.settled().await?;
        let old = self.primary().await?.address();
        let asked = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", Self::SERVICE]).await?;
        ensure!(asked.text() == "OK", "the Sentinel answered {asked}");
        self.primary_after(old).await
    }

    /// Waits until all Sentinels name another primary than `old`, and that server agrees.
    ///
    /// To be called after the old one was killed or stopped; both take the Sentinels some time to
    /// notice.
    ///
    /// # Errors
    /// There is none in time.
    pub async fn primary_after(&self, old: SocketAddr) -> Result<&RedisServer> {
        eventually(Self::PATIENCE, "a failover", async || {
            for sentinel in &self.sentinels {
                if said_by(sentinel).await? == old {
                    return Ok(None);
                }
            }
            let primary = self.primary().await?;
            let role = primary.ask(&["ROLE"]).await?;
            Ok(role.list().first().is_some_and(|role| role.text() == "master").then_some(primary))
        })
        .await
    }
}

/// A primary and its replica, which has all that the primary has.
async fn pair(options: RedisOptions) -> Result<Vec<RedisServer>> {
    let mut options = options;
    options.args.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
    let primary = RedisServer::start(options.clone()).await?;
    let port = primary.address().port().to_string();
    options.args.extend(["--replicaof", "127.0.0.1", &port].map(str::to_owned));
    let replica = RedisServer::start(options).await?;
    eventually(SentinelSet::PATIENCE, "the first copy to the replica", async || {
        let info = primary.ask(&["INFO", "replication"]).await?;
        Ok(info.field("slave0").is_some_and(|replica| replica.contains("state=online")).then_some(()))
    })
    .await?;
    Ok(vec![primary, replica])
}

async fn sentinel(program: PathBuf, watched: SocketAddr) -> Result<RedisServer> {
    let service = SentinelSet::SERVICE;
    let rest = format!(
        "sentinel monitor {service} {} {} 2\nsentinel down-after-milliseconds {service} 500\n\
         sentinel failover-timeout {service} 3000\n",
        watched.ip(),
        watched.port()
    );
    let options = RedisOptions { program, ..RedisOptions::default() };
    let sentinel = RedisServer::start_as(options, Some(rest)).await?;
    // Meeting and demoting take ten seconds each with the periods that production has. But the Sentinel
    // that leads a failover looks at the servers only once a second: it must take what it knows for
    // news for longer (five ping periods), and the others must bear with it for longer (four publish
    // periods), else they undo the failover.
    let periods = "info-period 300 ping-period 300 publish-period 500 ask-period 100 election-timeout 1000 \
                   tilt-period 2000 min-link-reconnect-period 500";
    let debug: Vec<&str> = ["SENTINEL", "DEBUG"].into_iter().chain(periods.split_whitespace()).collect();
    sentinel.ask(&debug).await?;
    Ok(sentinel)
}

/// Where a Sentinel says that the primary is.
async fn said_by(sentinel: &RedisServer) -> Result<SocketAddr> {
    let said = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelSet::SERVICE]).await?;
    let [host, port] = said.list() else { anyhow::bail!("the Sentinel answered {said}") };
    format!("{host}:{port}").parse().with_context(|| format!("the Sentinel answered {said}"))
}
