use std::path::PathBuf;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::TlsFiles;

/// An authority that nobody else trusts, for servers that speak TLS. Its files are deleted with it.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// Its certificate cannot be made or written.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Who is called like those it signs is taken for one of them by OpenSSL, which then looks no further.
        params.distinguished_name.push(DnType::CommonName, "an authority of Palisade's tests");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("ca.pem"), issuer.pem())?;
        Ok(Self { issuer, folder })
    }

    /// Its own certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for `host` and for this machine's own address; over already if `expired`.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub fn certificate(&self, host: &str, expired: bool) -> Result<TlsFiles> {
        let mut params = CertificateParams::new(vec![host.to_owned(), "127.0.0.1".to_owned()])?;
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 2);
        }
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        let write = |name: String, text: String| -> Result<PathBuf> {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        Ok(TlsFiles {
            cert: write(format!("{host}.pem"), cert.pem())?,
            key: write(format!("{host}.key"), key.serialize_pem())?,
            ca: self.ca(),
        })
    }
}
