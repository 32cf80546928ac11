use std::future::poll_fn;
use std::sync::Arc;

use palisade_core::{Error, ErrorKind, Result};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresConfig;
use super::error::refused;
use super::line::Line;
use crate::address::Tls;
use crate::tls::{own, trusted};

/// What is done with what the server tells unasked.
pub(crate) type OnNews = Arc<dyn Fn(&str) + Send + Sync>;

/// Makes a connection. `named`: whether the server keeps statements for it, which a pooler does not.
pub(crate) async fn dial(config: &PostgresConfig, named: bool, on_news: OnNews) -> Result<Line> {
    let limit = config.connect_timeout;
    tokio::time::timeout(limit, connect(config, named, on_news)).await.unwrap_or_else(|_| {
        let message = format!("{} did not answer within {limit:?}; is it PostgreSQL?", config.place());
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

async fn connect(config: &PostgresConfig, named: bool, on_news: OnNews) -> Result<Line> {
    let settings = settings(config);
    let refused = |error| refused(config, error);
    match &config.tls {
        None => {
            let (client, connection) = settings.connect(NoTls).await.map_err(refused)?;
            Ok(Line::new(client, drive(connection, on_news), config, named))
        }
        Some(tls) => {
            let tls = MakeRustlsConnect::new(tls_config(tls)?);
            let (client, connection) = settings.connect(tls).await.map_err(refused)?;
            Ok(Line::new(client, drive(connection, on_news), config, named))
        }
    }
}

/// Has the server stop what it does for a connection. Completes once it was told.
pub(super) async fn cancel(config: &PostgresConfig, line: &Line) -> Result<()> {
    let token = line.client().cancel_token();
    let told = async {
        match &config.tls {
            None => token.cancel_query(NoTls).await.map_err(super::error::failed),
            Some(tls) => {
                let tls = MakeRustlsConnect::new(tls_config(tls)?);
                token.cancel_query(tls).await.map_err(super::error::failed)
            }
        }
    };
    tokio::time::timeout(config.connect_timeout, told)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "the server was not told to stop in time")))
}

fn settings(config: &PostgresConfig) -> tokio_postgres::Config {
    let mut settings = tokio_postgres::Config::new();
    settings.host(&config.host).port(config.port).application_name("palisade");
    settings.connect_timeout(config.connect_timeout);
    // Encrypted or not, as was said: what falls back to plain text can be made to by anyone in between.
    settings.ssl_mode(if config.tls.is_some() { SslMode::Require } else { SslMode::Disable });
    if let Some(user) = &config.login.user {
        settings.user(user);
    }
    if let Some(password) = &config.login.password {
        settings.password(password);
    }
    if let Some(database) = &config.database {
        settings.dbname(database);
    }
    settings
}

/// Moves what goes over a connection, until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, on_news: OnNews)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(news))) => on_news(news.payload()),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "a connection ended");
                return;
            }
            None => return,
        }
    }
}

/// As libpq's verify-full: the chain is checked, and the name.
fn tls_config(tls: &Tls) -> Result<ClientConfig> {
    let internal = |error: rustls::Error| Error::new(ErrorKind::Internal, error.to_string());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted(tls)?);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(internal)?
        .with_root_certificates(roots);
    match own(tls)? {
        Some((certificates, key)) => builder.with_client_auth_cert(certificates, key).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("tls-cert and tls-key cannot be used: {error}"))
        }),
        None => Ok(builder.with_no_client_auth()),
    }
}
