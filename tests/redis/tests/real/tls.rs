//! Encrypted connections: the right certificate, and all the wrong ones.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use palisade::ErrorKind;
use palisade_redis_trials::client;
use palisade_testkit::servers::{RedisOptions, RedisServer, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("ca.pem"), issuer.pem())?;
        Ok(Self { issuer, folder })
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for `host`, over already if `expired`.
    fn certificate(&self, host: &str, expired: bool) -> Result<TlsFiles> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 2);
        }
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        let write = |name: &str, text: String| -> Result<PathBuf> {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        Ok(TlsFiles {
            cert: write("cert.pem", cert.pem())?,
            key: write("key.pem", key.serialize_pem())?,
            ca: self.ca(),
        })
    }
}

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
    // Signed by somebody else than the one we trust.
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
    ensure!(error.is_transient() || error.kind() == ErrorKind::Unavailable, "{error:?}");
    let missing = format!("rediss://localhost:{port}?tls-ca=/nowhere/ca.pem");
    let error = palisade::connect(&missing).await.err().context("there is no such file")?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("/nowhere/ca.pem"), "{error}");
    let unencrypted = format!("redis://{}?tls-ca=/nowhere/ca.pem", server.address());
    let error = palisade::connect(&unencrypted).await.err().context("it is not encrypted")?;
    ensure!(error.to_string().contains("rediss:"), "{error}");
    Ok(())
}
