//! Real etcd servers and clients of them, for the tests beside.

use std::path::PathBuf;

use anyhow::Result;
use palisade::Client;
use palisade_testkit::servers::{EtcdOptions, EtcdSet, newer_etcd};
use palisade_testkit::trial;
pub use palisade_testkit::trial::{PATIENCE, soon, until};

/// One server.
///
/// # Errors
/// It does not start.
pub async fn one() -> Result<EtcdSet> {
    EtcdSet::start(1, EtcdOptions::default()).await
}

/// Three servers, of a version that keeps its leases.
///
/// # Errors
/// They do not start.
pub async fn three() -> Result<EtcdSet> {
    let program = newer_etcd().unwrap_or_else(|_| PathBuf::from("etcd"));
    EtcdSet::start(3, EtcdOptions { program, ..EtcdOptions::default() }).await
}

/// Where a client finds a cluster.
pub fn url(set: &EtcdSet) -> String {
    format!("etcd://{}", set.hosts())
}

/// A client with claims of three seconds: short enough to wait for, long enough for a busy machine.
///
/// # Errors
/// It cannot connect.
pub async fn client(url: &str) -> Result<Client> {
    trial::client(url, 3).await
}
