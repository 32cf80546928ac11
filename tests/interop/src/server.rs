use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// A Redis server of our own on this host; it ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    _process: Child,
    _folder: TempDir,
}

impl Server {
    const START_LIMIT: Duration = Duration::from_secs(10);

    pub(crate) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("palisade-interop").tempdir()?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .args(["--loglevel", "warning", "--dir"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("redis-server could not be started")?;
        let server = Self { port, _process: process, _folder: folder };
        let end = Instant::now() + Self::START_LIMIT;
        while let Err(error) = server.connect().await {
            anyhow::ensure!(Instant::now() < end, "redis-server does not answer: {error:#}");
            sleep(Duration::from_millis(10)).await;
        }
        Ok(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        connect(self.port).await
    }

    pub(crate) async fn version(&self) -> Result<String> {
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut self.connect().await?).await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("of unknown version").to_owned())
    }

    /// Forgets everything, so that one case does not see what another left.
    pub(crate) async fn clear(&self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").query_async(&mut self.connect().await?).await?)
    }
}

pub(crate) async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    Ok(client.get_multiplexed_async_connection().await?)
}
