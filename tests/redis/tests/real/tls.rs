//! Encrypted connections: the right certificate, and all the wrong ones.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use palisade::ErrorKind;
use palisade_redis_trials::client;
use palisade_testkit::servers::{Authority, RedisOptions, RedisServer, TlsFiles};

async fn server(tls: TlsFiles) -> Result<(RedisServer, u16)> {
    let server = RedisServer::start(RedisOptions { tls: Some(tls), ..RedisOptions::default() }).await?;
    let port = server.tls_address().context("it has a TLS port")?.port();
    Ok((server, port))
}

fn url(port: u16, ca: &Path) -> String {
    format!("rediss://localhost:{port}?tls-ca={}&connect-timeout=5s", ca.display())
}

async fn is_refused(url: &str) -> Result<()> {
    let error = palisade::connect(url).await.err().context("it was trusted")?;
    ensure!(error.to_string().contains("certificate"), "{error} {error:?}");
    ensure!(error.kind() != ErrorKind::Internal, "{error:?}");
    Ok(())
}

#[tokio::test]
async fn the_right_certificate_is_trusted() -> Result<()> {
    let authority = Authority::new()?;
    let (_server, port) = server(authority.certificate("localhost", false)?).await?;
    let client = client(&url(port, &authority.ca())).await?;
    client.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn wrong_certificates_are_not() -> Result<()> {
    let authority = Authority::new()?;
    let (_server, port) = server(authority.certificate("localhost", false)?).await?;
    // Signed by somebody else than the one we trust; what to do is said.
    let error = palisade::connect(&url(port, &Authority::new()?.ca())).await.err().context("trusted")?;
    ensure!(error.to_string().contains("tls-ca"), "{error}");
    is_refused(&url(port, &Authority::new()?.ca())).await?;
    // By none of those that this machine trusts.
    is_refused(&format!("rediss://localhost:{port}?connect-timeout=5s")).await?;
    // For another host.
    let other = Authority::new()?;
    let (_server, port) = server(other.certificate("elsewhere.example", false)?).await?;
    is_refused(&url(port, &other.ca())).await?;
    // Over.
    let past = Authority::new()?;
    let (_server, port) = server(past.certificate("localhost", true)?).await?;
    is_refused(&url(port, &past.ca())).await?;
    Ok(())
}

#[tokio::test]
async fn a_plain_server_and_a_missing_file_are_named() -> Result<()> {
    let authority = Authority::new()?;
    let (server, port) = server(authority.certificate("localhost", false)?).await?;
    let plain = url(server.address().port(), &authority.ca());
    let error = palisade::connect(&plain).await.err().context("it speaks no TLS")?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("write redis "), "{error}");
    let encrypted = format!("redis://localhost:{port}");
    let error = palisade::connect(&encrypted).await.err().context("it speaks TLS only")?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("write rediss "), "{error}");
    let missing = format!("rediss://localhost:{port}?tls-ca=/nowhere/ca.pem");
    let error = palisade::connect(&missing).await.err().context("there is no such file")?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("/nowhere/ca.pem"), "{error}");
    let no_pem = authority.ca().with_file_name("empty.pem");
    std::fs::write(&no_pem, "")?;
    let error = palisade::connect(&url(port, &no_pem)).await.err().context("there is nobody in it")?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("no PEM"), "{error}");
    let unencrypted = format!("redis://{}?tls-ca=/nowhere/ca.pem", server.address());
    let error = palisade::connect(&unencrypted).await.err().context("it is not encrypted")?;
    ensure!(error.to_string().contains("rediss:"), "{error}");
    Ok(())
}
