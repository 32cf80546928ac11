//! A real Redis server and clients of it, for the tests beside.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use palisade::{Client, ClientBuilder};
use palisade_testkit::servers::{RedisOptions, RedisServer};

/// Far above what anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server that keeps nothing.
///
/// # Errors
/// It does not start.
pub async fn server() -> Result<RedisServer> {
    RedisServer::start(RedisOptions::default()).await
}

/// Where a client finds a server.
pub fn url(server: &RedisServer) -> String {
    format!("redis://{}", server.address())
}

/// A client with claims of two seconds: short enough to wait for, long enough for a busy machine.
///
/// # Errors
/// It cannot connect.
pub async fn client(url: &str) -> Result<Client> {
    Ok(ClientBuilder::default().ttl(Duration::from_secs(2)).connect(url).await?)
}

/// Waits for something that must happen.
///
/// # Errors
/// It did not, in time.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, happens).await.with_context(|| format!("{what}: not in time"))
}

/// Waits until a condition holds.
///
/// # Errors
/// It did not, in time.
pub async fn until<F: Future<Output = Result<bool>>>(what: &str, mut holds: impl FnMut() -> F) -> Result<()> {
    soon(what, async {
        while !holds().await? {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
    .await?
}
