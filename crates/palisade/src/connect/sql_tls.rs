use std::path::PathBuf;

use palisade_core::Result;
use palisade_sql::Tls;

use crate::url::{EngineUrl, invalid};

/// Encrypted if `tls` says so, or if files for it are named.
pub(super) fn tls(url: &mut EngineUrl) -> Result<Option<Tls>> {
    let mut tls = Tls::default();
    for (file, option) in [(&mut tls.ca, "tls-ca"), (&mut tls.cert, "tls-cert"), (&mut tls.key, "tls-key")] {
        *file = url.take(option).map(PathBuf::from);
    }
    let named = tls != Tls::default();
    match url.take("tls").as_deref() {
        Some("on") => Ok(Some(tls)),
        None => Ok(named.then_some(tls)),
        Some("off") if !named => Ok(None),
        Some("off") => Err(invalid("files for TLS are named, but tls=off")),
        Some(other) => Err(invalid(format!("option tls is `on` or `off`, not {other:?}"))),
    }
}
