use anyhow::Result;
use palisade_testkit::servers::{RedisOptions, RedisServer};
use redis::aio::MultiplexedConnection;

/// The Redis server that all contend on; it ends with this value.
#[derive(Debug)]
pub(crate) struct Server(RedisServer);

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        Ok(Self(RedisServer::start(RedisOptions::default()).await?))
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.address().port()
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        connect(self.port()).await
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
