use std::path::Path;
use std::sync::Arc;

use palisade_core::{Error, ErrorKind, Result};
use tonic::Status;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::beats::Beats;
use crate::config::{EtcdConfig, Tls};
use crate::error::failed;
use crate::proto::{AuthenticateRequest, AuthenticateResponse, path};
use crate::watching::Watching;
use crate::wire::{WINDOW, Wire};

/// One connection to one server, with its two streams.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) server: String,
    pub(crate) wire: Wire,
    pub(crate) watching: Watching,
    pub(crate) beats: Beats,
}

/// Connects to one server, and logs in.
pub(crate) async fn dial(config: &EtcdConfig, server: &str) -> Result<Arc<Line>> {
    if config.tls.is_some() {
        return dial_by_library(config, server).await;
    }
    match tokio::time::timeout(config.connect_timeout, Wire::plain(server)).await {
        Ok(Ok(wire)) => enter(config, server, wire).await,
        Ok(Err(error)) => Err(no_connection(server, false, error)),
        Err(late) => Err(no_connection(server, false, late)),
    }
}

/// The same over the library's connection, as most clients have it.
pub(crate) async fn dial_by_library(config: &EtcdConfig, server: &str) -> Result<Arc<Line>> {
    match endpoint(config, server)?.connect().await {
        Ok(channel) => enter(config, server, Wire::library(channel)).await,
        Err(error) => Err(no_connection(server, config.tls.is_some(), error)),
    }
}

/// Logs in.
async fn enter(config: &EtcdConfig, server: &str, mut wire: Wire) -> Result<Arc<Line>> {
    if let Some(login) = &config.login {
        let request = AuthenticateRequest { name: login.user.clone(), password: login.password.clone() };
        match wire.unary::<_, AuthenticateResponse>(path::AUTHENTICATE, request).await {
            Ok(answer) => wire.log_in(&answer.token).map_err(|_| crate::error::unexpected())?,
            // Whoever brings a password to a server that asks for none is let in.
            Err(status) if status.message().contains("authentication is not enabled") => {}
            Err(status) => return Err(first_words(config, server, status)),
        }
    }
    let watching = Watching::new(wire.clone());
    let beats = Beats::new(wire.clone());
    Ok(Arc::new(Line { server: server.to_owned(), wire, watching, beats }))
}

fn endpoint(config: &EtcdConfig, server: &str) -> Result<Endpoint> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{server}"))
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("{server} is no address")).because(error))?
        .connect_timeout(config.connect_timeout)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let Some(tls) = &config.tls else { return Ok(endpoint) };
    let mut settings = ClientTlsConfig::new();
    settings = match &tls.ca {
        Some(path) => settings.ca_certificate(Certificate::from_pem(file("tls-ca", path)?)),
        None => settings.with_native_roots(),
    };
    settings = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            settings.identity(Identity::from_pem(file("tls-cert", cert)?, file("tls-key", key)?))
        }
        (None, None) => settings,
        _ => {
            let message = "a client certificate needs both tls-cert and tls-key";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
    };
    endpoint.tls_config(settings).map_err(|error| {
        let message = format!("the certificates cannot be used: {}", causes(&error));
        Error::new(ErrorKind::Invalid, message).because(error)
    })
}

fn file(option: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("{option} {} cannot be read: {error}", path.display()))
    })
}

/// Why no connection came about, as far as it can be told.
fn no_connection(
    server: &str,
    encrypted: bool,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    let words = causes(&error);
    let hint = if words.contains("certificate") || words.contains("InvalidContentType") {
        " (encrypted with etcds:, unencrypted with etcd:)"
    } else if encrypted {
        " (is it encrypted there? etcd: is for servers that are not)"
    } else {
        return Error::unreachable(server, &error);
    };
    let message = format!("{server} cannot be reached: {words}{hint}");
    Error::new(ErrorKind::Unavailable, message).because(error)
}

/// The first answer of a server tells whether it is an etcd at all, and whether it takes our certificate: a server
/// refuses one, or none, only after the connection is made.
pub(crate) fn first_words(config: &EtcdConfig, server: &str, status: Status) -> Error {
    let Some(cause) = std::error::Error::source(&status) else { return failed(status) };
    let words = causes(cause);
    let hint = match &config.tls {
        Some(Tls { cert: None, .. }) => "does it ask for a certificate of ours (tls-cert, tls-key)?",
        Some(_) => "does it trust our certificate?",
        None => "is another program there, or is it encrypted (etcds:)?",
    };
    let message = format!("{server} does not answer as etcd does: {words}; {hint}");
    Error::new(ErrorKind::Unavailable, message).because(status)
}

/// An error with all that caused it, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        next = cause.source();
    }
    words
}
