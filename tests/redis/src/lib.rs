//! A real Redis server and clients of it, for the tests beside.

use anyhow::Result;
use palisade::Client;
use palisade_testkit::servers::{RedisOptions, RedisServer};
use palisade_testkit::trial;
pub use palisade_testkit::trial::{PATIENCE, soon, until};

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
    trial::client(url, 2).await
}
