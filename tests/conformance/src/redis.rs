//! Fixtures over real Redis servers.

use std::env;
use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use palisade_core::{Engine, Error, ErrorKind};
use palisade_testkit::servers::{ClusterSet, Persistence, RedisOptions, RedisServer, SentinelSet};
use palisade_testkit::{Fixture, Options};
use tokio::runtime::Runtime;

use crate::main_for;

/// Starts a fixture's servers, and runs the suite over it, with the program `taker` for other processes. They end with the program at the latest.
///
/// # Panics
/// They cannot be started.
pub fn run<F: Fixture>(taker: &str, start: impl Future<Output = Result<F>>) -> ExitCode {
    let runtime = Runtime::new().expect("the runtime starts");
    let fixture = match runtime.block_on(start) {
        Ok(fixture) => fixture,
        Err(problem) => panic!("{problem:#}"),
    };
    main_for(fixture, Options { taker: Some(taker.into()), ..Options::default() })
}

/// Where `cargo xtask test` puts Valkey: in `$PALISADE_VALKEY`, else below the build's folder.
///
/// # Errors
/// It is not there.
pub fn valkey() -> Result<PathBuf> {
    if let Some(path) = env::var_os("PALISADE_VALKEY") {
        return Ok(path.into());
    }
    let test = env::current_exe()?;
    let found = test.ancestors().map(|folder| folder.join("servers/valkey/bin/valkey-server"));
    found.into_iter().find(|path| path.is_file()).context(
        "there is no Valkey: `cargo xtask test` fetches it; or name a valkey-server in PALISADE_VALKEY",
    )
}

async fn connect(url: &str) -> palisade_core::Result<Arc<dyn Engine>> {
    Ok(Arc::clone(palisade::connect(url).await?.engine()))
}

fn crashed(problem: &anyhow::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("a server was not restarted: {problem:#}"))
}

/// Longer than a request takes while eight cases and their workloads run on two processors.
const SHORT_TTL: Duration = Duration::from_millis(800);

/// One server.
#[derive(Debug)]
pub struct Single {
    name: &'static str,
    server: RedisServer,
}

impl Single {
    /// Starts it.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(name: &'static str, options: RedisOptions) -> Result<Self> {
        Ok(Self { name, server: RedisServer::start(options).await? })
    }
}

#[async_trait]
impl Fixture for Single {
    fn name(&self) -> &str {
        self.name
    }

    async fn connect(&self, namespace: &str) -> palisade_core::Result<Arc<dyn Engine>> {
        connect(&format!("redis://{}?namespace={namespace}", self.server.address())).await
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(format!("redis://{}?namespace={namespace}", self.server.address()))
    }

    fn short_ttl(&self) -> Duration {
        SHORT_TTL
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }

    async fn restart(&self) -> palisade_core::Result<()> {
        let crash = async {
            self.server.kill().await?;
            self.server.start_again(false).await
        };
        crash.await.map_err(|problem| crashed(&problem))
    }
}

/// Several servers that belong together.
#[derive(Debug)]
pub struct Several {
    name: String,
    /// Without a namespace.
    url: String,
    servers: Servers,
}

#[derive(Debug)]
enum Servers {
    #[expect(dead_code, reason = "kept until the suite is over")]
    Sentinel(SentinelSet),
    Cluster(ClusterSet),
    Redlock(Vec<RedisServer>),
}

fn kept() -> RedisOptions {
    RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() }
}

impl Several {
    /// A primary, its replica, and three Sentinels.
    ///
    /// # Errors
    /// One does not come up.
    pub async fn sentinel() -> Result<Self> {
        let set = SentinelSet::start(kept()).await?;
        let addresses: Vec<String> = set.addresses().iter().map(ToString::to_string).collect();
        let url = format!("redis+sentinel://{}/{}?", addresses.join(","), SentinelSet::SERVICE);
        Ok(Self { name: "redis+sentinel".to_owned(), url, servers: Servers::Sentinel(set) })
    }

    /// A Cluster of three masters.
    ///
    /// # Errors
    /// One does not come up.
    pub async fn cluster() -> Result<Self> {
        let set = ClusterSet::start(kept()).await?;
        let addresses: Vec<String> = set.addresses().iter().map(ToString::to_string).collect();
        let url = format!("redis+cluster://{}?", addresses.join(","));
        Ok(Self { name: "redis+cluster".to_owned(), url, servers: Servers::Cluster(set) })
    }

    /// So many servers that vote.
    ///
    /// # Errors
    /// One does not come up.
    pub async fn redlock(nodes: usize) -> Result<Self> {
        // Above the longest TTL in the suite. New servers do not vote for so long, unless they say
        // that they were up all the time.
        let longest = Duration::from_mins(3);
        let options = RedisOptions { clock: true, up_for: longest * 2, ..kept() };
        let mut servers = Vec::new();
        let mut url = String::from("redlock:");
        for place in 0..nodes {
            let server = RedisServer::start(options.clone()).await?;
            server.up_for(longest + Duration::from_secs(1)).await?;
            let _ = write!(url, "{}redis://{}", if place == 0 { "" } else { "," }, server.address());
            servers.push(server);
        }
        let _ = write!(url, "?node-timeout=500ms&longest-ttl={}s&", longest.as_secs());
        Ok(Self { name: format!("redlock*{nodes}"), url, servers: Servers::Redlock(servers) })
    }

    async fn crash(&self) -> Result<()> {
        match &self.servers {
            Servers::Sentinel(_) => {}
            Servers::Cluster(set) => {
                for server in &set.servers {
                    server.kill().await?;
                }
                for server in &set.servers {
                    server.start_again(false).await?;
                }
                set.serves().await?;
            }
            Servers::Redlock(servers) => {
                for server in servers {
                    server.kill().await?;
                    server.start_again(false).await?;
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Fixture for Several {
    fn name(&self) -> &str {
        &self.name
    }

    async fn connect(&self, namespace: &str) -> palisade_core::Result<Arc<dyn Engine>> {
        connect(&format!("{}namespace={namespace}", self.url)).await
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(format!("{}namespace={namespace}", self.url))
    }

    /// A Cluster takes a request per claim, a quorum one per claim and node: 10,000 guards at a time are
    /// more than a debug build on two processors gets done within a TTL.
    fn effort(&self) -> u32 {
        match &self.servers {
            Servers::Sentinel(_) => 100,
            Servers::Cluster(_) => 30,
            Servers::Redlock(nodes) => 90 / nodes.len().pow(2) as u32,
        }
    }

    fn short_ttl(&self) -> Duration {
        SHORT_TTL
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        matches!(self.servers, Servers::Sentinel(_))
            .then_some("a restart of the primary is a failover, which may forget; tests of its own show that")
    }

    async fn restart(&self) -> palisade_core::Result<()> {
        self.crash().await.map_err(|problem| crashed(&problem))
    }
}
