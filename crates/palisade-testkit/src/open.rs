use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use palisade::{Client, ClientBuilder};
use palisade_core::{Error, ErrorKind, Result};

use crate::remote::{RemoteConfig, RemoteEngine};

/// Connects to any engine that [`palisade::connect`] knows, and to a server of [`crate::remote`]:
/// `remote://127.0.0.1:PORT?namespace=NAME&call-timeout=MILLISECONDS`.
///
/// # Errors
/// As [`palisade::connect`].
pub async fn open(url: &str, builder: ClientBuilder) -> Result<Client> {
    match url.strip_prefix("remote://") {
        None => builder.connect(url).await,
        Some(rest) => builder.over(Arc::new(RemoteEngine::open(parse(rest)?).await?)),
    }
}

fn parse(rest: &str) -> Result<RemoteConfig> {
    let (address, options) = rest.split_once('?').unwrap_or((rest, ""));
    let address: SocketAddr = address
        .parse()
        .map_err(|_| invalid("a remote: URL names an address and a port, as in remote://127.0.0.1:7000"))?;
    let mut config = RemoteConfig::new(address, "");
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=').unwrap_or((option, "")) {
            ("namespace", name) if !name.contains('%') => name.clone_into(&mut config.namespace),
            ("call-timeout", limit) => {
                let limit = limit.parse().map_err(|_| invalid("call-timeout is a number of milliseconds"))?;
                config = config.call_timeout(Duration::from_millis(limit));
            }
            _ => {
                return Err(invalid(&format!(
                    "{option:?} is no option of a remote: URL; there are namespace, without %, and call-timeout"
                )));
            }
        }
    }
    Ok(config)
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
        let config = parse("127.0.0.1:7?namespace=jobs&call-timeout=250").unwrap();
        assert_eq!((config.namespace.as_str(), config.call_timeout), ("jobs", Duration::from_millis(250)));
        for bad in
            ["", "localhost", "127.0.0.1:7?x=1", "127.0.0.1:7?namespace=a%20b", "[::1]:7?call-timeout="]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
