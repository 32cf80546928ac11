use std::io;
use std::pin::Pin;
use std::sync::Arc;

use palisade_core::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::{Tls, ZooKeeperConfig};

/// Bytes to and from a server, encrypted or not.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Wire for T {}

/// Opens a stream to a server.
pub(crate) async fn dial(
    config: &ZooKeeperConfig,
    tls: Option<&TlsConnector>,
    server: &str,
) -> Result<Pin<Box<dyn Wire>>> {
    let stream = TcpStream::connect(server).await.map_err(|error| Error::unreachable(server, &error))?;
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return Ok(Box::pin(stream)) };
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("{host:?} is no name of a host")).because(error)
    })?;
    match tls.connect(name, stream).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(error) => Err(not_encrypted(config, server, error)),
    }
}

fn not_encrypted(config: &ZooKeeperConfig, server: &str, error: io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let message = match inner {
        Some(rustls::Error::InvalidCertificate(problem)) => {
            let trusted = config.tls.as_ref().and_then(|tls| tls.ca.as_ref());
            let whom = trusted.map_or("the system's authorities".to_owned(), |ca| ca.display().to_string());
            format!("the certificate of {server} is none that {whom} vouches for: {problem}")
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("{server} refuses our certificate, or asks for one (tls-cert, tls-key): {alert:?}")
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            format!(
                "{server} does not speak TLS: is it the encrypted port (secureClientPort)? A plain one is zk:"
            )
        }
        // Who hangs up in the middle may be on its way down.
        _ => {
            let message = format!(
                "{server} ended the encrypted connection: {error}; is it an encrypted port (secureClientPort)? A plain one is zk:"
            );
            return Error::new(ErrorKind::Unavailable, message).because(error);
        }
    };
    Error::new(ErrorKind::Denied, message).because(error)
}

/// What encrypted connections are made with.
pub(crate) fn connector(tls: &Tls) -> Result<TlsConnector> {
    let invalid = |message: String| Error::new(ErrorKind::Invalid, message);
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            let unread = |error| invalid(format!("tls-ca {} cannot be read: {error}", path.display()));
            for certificate in CertificateDer::pem_file_iter(path).map_err(unread)? {
                let certificate = certificate.map_err(unread)?;
                roots
                    .add(certificate)
                    .map_err(|error| invalid(format!("tls-ca {}: {error}", path.display())))?;
            }
            if roots.is_empty() {
                return Err(invalid(format!("tls-ca {} holds no certificate", path.display())));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(error.to_string()))?
        .with_root_certificates(roots);
    let config = match (&tls.cert, &tls.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let unread = |path: &std::path::Path, error| {
                invalid(format!("{} cannot be read: {error}", path.display()))
            };
            let chain = CertificateDer::pem_file_iter(cert)
                .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
                .map_err(|error| unread(cert, error))?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| invalid(error.to_string()))?
        }
        _ => return Err(invalid("tls-cert and tls-key belong together".to_owned())),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}
