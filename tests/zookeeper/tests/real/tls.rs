//! Encrypted connections: the right certificates, and all the wrong ones.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use palisade::ErrorKind;
use palisade_testkit::servers::{Authority, TlsFiles, ZooKeeperOptions, ZooKeeperSet};
use palisade_zookeeper_trials::client;

async fn server(tls: TlsFiles) -> Result<(ZooKeeperSet, u16)> {
    let set =
        ZooKeeperSet::start(1, ZooKeeperOptions { tls: Some(tls), ..ZooKeeperOptions::default() }).await?;
    let port = set.servers[0].secure_port();
    Ok((set, port))
}

fn url(port: u16, ca: &Path, own: Option<&TlsFiles>) -> String {
    let own = own.map_or_else(String::new, |own| {
        format!("&tls-cert={}&tls-key={}", own.cert.display(), own.key.display())
    });
    format!("zks://localhost:{port}?tls-ca={}&connect-timeout=5s{own}", ca.display())
}

async fn is_refused(url: &str, word: &str) -> Result<()> {
    let error = palisade::connect(url).await.err().context("it was trusted")?;
    ensure!(error.to_string().to_lowercase().contains(word), "{error} {error:?}");
    ensure!(error.kind() != ErrorKind::Internal, "{error:?}");
    Ok(())
}

#[tokio::test]
async fn the_right_certificates_are_trusted_on_both_sides() -> Result<()> {
    let authority = Authority::new()?;
    let (_set, port) = server(authority.certificate("localhost", false)?).await?;
    let own = authority.certificate("client", false)?;
    let client = client(&url(port, &authority.ca(), Some(&own))).await?;
    client.mutex("orders")?.acquire().await?.release().await?;
    // Without one of our own, the server refuses.
    is_refused(&url(port, &authority.ca(), None), "certificate").await?;
    let half = format!("{}&tls-cert={}", url(port, &authority.ca(), None), own.cert.display());
    is_refused(&half, "tls-key").await
}

#[tokio::test]
async fn wrong_certificates_are_not() -> Result<()> {
    let authority = Authority::new()?;
    let (_set, port) = server(authority.certificate("localhost", false)?).await?;
    let own = authority.certificate("client", false)?;
    // Signed by somebody else than the one we trust.
    is_refused(&url(port, &Authority::new()?.ca(), Some(&own)), "certificate").await?;
    // By none of those that this machine trusts.
    is_refused(&format!("zks://localhost:{port}?connect-timeout=5s"), "certificate").await?;
    // For another host.
    let other = Authority::new()?;
    let (_set, port) = server(other.certificate("elsewhere.example", false)?).await?;
    is_refused(&url(port, &other.ca(), None), "certificate").await?;
    // Over.
    let past = Authority::new()?;
    let (_set, port) = server(past.certificate("localhost", true)?).await?;
    is_refused(&url(port, &past.ca(), None), "certificate").await
}

#[tokio::test]
async fn a_plain_server_and_a_missing_file_are_named() -> Result<()> {
    let authority = Authority::new()?;
    let plain = palisade_zookeeper_trials::one().await?;
    let error = palisade::connect(&url(plain.servers[0].address().port(), &authority.ca(), None)).await.err();
    let error = error.context("it speaks no TLS")?;
    ensure!(error.to_string().contains("zk:"), "{error}");
    let (_set, port) = server(authority.certificate("localhost", false)?).await?;
    let error =
        palisade::connect(&format!("zk://localhost:{port}")).await.err().context("it is encrypted")?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("zks:"), "{error}");
    is_refused(&format!("zks://localhost:{port}?tls-ca=/nowhere/ca.pem"), "/nowhere/ca.pem").await
}
