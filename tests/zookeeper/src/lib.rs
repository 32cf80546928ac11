//! Real ZooKeeper servers and clients of them, for the tests beside.

use std::time::Duration;

use anyhow::Result;
use palisade::Client;
use palisade_testkit::servers::{ZooKeeperOptions, ZooKeeperSet};
use palisade_testkit::trial;
pub use palisade_testkit::trial::{PATIENCE, soon, until};
use palisade_zookeeper::ZooKeeperConfig;
use palisade_zookeeper::bare::Bare;

/// One server.
///
/// # Errors
/// It does not start.
pub async fn one() -> Result<ZooKeeperSet> {
    ZooKeeperSet::start(1, ZooKeeperOptions::default()).await
}

/// Three servers that can be cut off from each other.
///
/// # Errors
/// They do not start.
pub async fn three() -> Result<ZooKeeperSet> {
    ZooKeeperSet::start(3, ZooKeeperOptions { proxies: true, ..ZooKeeperOptions::default() }).await
}

/// Where a client finds a cluster.
pub fn url(set: &ZooKeeperSet) -> String {
    format!("zk://{}", set.hosts())
}

/// A client with claims of three seconds: short enough to wait for, long enough for a busy machine.
///
/// # Errors
/// It cannot connect.
pub async fn client(url: &str) -> Result<Client> {
    trial::client(url, 3).await
}

/// A session as any other client's.
///
/// # Errors
/// It cannot connect.
pub async fn bare(set: &ZooKeeperSet) -> Result<Bare> {
    Ok(Bare::connect(ZooKeeperConfig::parse(&url(set))?, Duration::from_secs(10)).await?)
}

/// The nodes of a lock.
///
/// # Errors
/// The server says no.
pub async fn nodes(bare: &Bare, name: &str) -> Result<Vec<String>> {
    let mut nodes = bare.children(&format!("/locks/{name}")).await?;
    nodes.sort();
    Ok(nodes)
}
