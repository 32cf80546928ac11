//! Real SQL servers and clients of them, for the tests beside.

use anyhow::{Context, Result, ensure};
use palisade::{Client, Error};
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};
use palisade_testkit::trial;
pub use palisade_testkit::trial::{PATIENCE, soon, until};

/// A password that must be shown nowhere.
pub const SECRET: &str = "hunter2";

/// One server that trusts everybody.
///
/// # Errors
/// It does not start.
pub async fn postgres() -> Result<PostgresServer> {
    PostgresServer::start(PostgresOptions::default()).await
}

/// One server whose superuser needs no password.
///
/// # Errors
/// It does not start.
pub async fn mariadb() -> Result<MariaDbServer> {
    MariaDbServer::start(MariaDbOptions::default()).await
}

/// A client with claims of three seconds: short enough to wait for, long enough for a busy machine.
///
/// # Errors
/// It cannot connect.
pub async fn client(url: &str) -> Result<Client> {
    trial::client(url, 3).await
}

/// Why `url` is refused; without the password.
///
/// # Errors
/// It is not, or the password is shown.
pub async fn refusal(url: &str) -> Result<Error> {
    let error = palisade::connect(url).await.err().context("it was accepted")?;
    let everything = format!("{error} {error:?}");
    ensure!(!everything.contains(SECRET), "a secret is shown: {everything}");
    Ok(error)
}
