//! What the files of an encrypted connection hold.

use std::path::Path;

use palisade_core::{Error, ErrorKind, Result};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::address::Tls;

/// Whom to trust: those in the file, else those whom this machine trusts.
pub(crate) fn trusted(tls: &Tls) -> Result<Vec<CertificateDer<'static>>> {
    let Some(path) = &tls.ca else {
        // Some of them are of no use to us, which is no reason to trust none.
        let usable =
            |certificate: &CertificateDer<'_>| RootCertStore::empty().add(certificate.clone()).is_ok();
        return Ok(rustls_native_certs::load_native_certs().certs.into_iter().filter(usable).collect());
    };
    let found = certificates(path)?;
    for certificate in &found {
        RootCertStore::empty().add(certificate.clone()).map_err(|error| bad(path, &error.to_string()))?;
    }
    Ok(found)
}

/// Who we are, where the server asks for it: our certificate, with those that it hangs on, and its key.
pub(crate) fn own(tls: &Tls) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let read = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error.to_string()))?;
            Ok(Some((certificates(cert)?, read)))
        }
        (None, None) => Ok(None),
        _ => Err(Error::new(ErrorKind::Invalid, "tls-cert and tls-key go together")),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(bad(path, "there is no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(bad(path, &error.to_string())),
    }
}

fn bad(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} cannot be used: {why}", path.display()))
}
