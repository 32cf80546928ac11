use std::time::Duration;

use mysql_async::{ClientIdentity, Conn, OptsBuilder, SslOpts};
use palisade_core::{Error, ErrorKind, Result};

use super::MySqlConfig;
use super::error::refused;
use super::line::Line;
use crate::address::Tls;
use crate::tls::{own, trusted};

/// What a session is set to, once: nothing of it decides, but it bounds how long a statement waits for a lock, and keeps
/// a connection that has nothing to do from being ended. A server's limit for statements is there for reports that go
/// wild: what takes a lock is bounded here, and must not be undone half-way. A mode of a server's may change what a statement
/// means (of several assignments each sees what those before it did, or not), or cut what does not fit.
const SETUP: &str = "SET SESSION innodb_lock_wait_timeout = 1, SESSION wait_timeout = 28800, SESSION autocommit = 1, \
     SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION' /*M! , SESSION max_statement_time = 0 */ /*!80000 , SESSION max_execution_time = 0 */";

/// How often a connection that has nothing to do is asked whether it is still there.
const LOOKS: Duration = Duration::from_secs(2);

/// Makes a connection.
pub(crate) async fn dial(config: &MySqlConfig) -> Result<Line> {
    connect(config, SETUP.to_owned(), LOOKS).await
}

/// Makes a connection which the server ends soon after its client fell silent.
pub(super) async fn dial_for_bells(config: &MySqlConfig) -> Result<Line> {
    connect(config, format!("{SETUP}, SESSION wait_timeout = 20"), LOOKS).await
}

/// Makes a connection whose end is noticed soon, and which is set to more than others are.
pub(super) async fn dial_for_locks(config: &MySqlConfig, settings: &str) -> Result<Line> {
    const LOOKS: Duration = Duration::from_millis(250);
    connect(config, format!("{SETUP}, {settings}"), LOOKS).await
}

async fn connect(config: &MySqlConfig, setup: String, looks: Duration) -> Result<Line> {
    let limit = config.connect_timeout;
    let connecting = Conn::new(settings(config)?.setup(vec![setup]));
    match tokio::time::timeout(limit, connecting).await {
        Ok(Ok(conn)) => Ok(Line::new(conn, looks)),
        Ok(Err(error)) => Err(refused(config, error)),
        Err(_) => {
            let message = format!("{} did not answer within {limit:?}; is it MySQL?", config.place());
            Err(Error::new(ErrorKind::Unavailable, message))
        }
    }
}

fn settings(config: &MySqlConfig) -> Result<OptsBuilder> {
    let tls = config.tls.as_ref().map(tls_settings).transpose()?;
    Ok(OptsBuilder::default()
        .ip_or_hostname(config.host.clone())
        .tcp_port(config.port)
        .db_name(Some(config.database.clone()))
        .user(config.login.user.clone())
        .pass(config.login.password.clone())
        // As was said: by a file of this machine, it may be another server.
        .prefer_socket(false)
        .tcp_nodelay(true)
        // With it, a server that does not encrypt is left before it is told who we are.
        .ssl_opts(tls))
}

/// As MySQL's own `VERIFY_IDENTITY`: the chain is checked, and the name. The list of authorities that the library brings is
/// not used: whom to trust is for this machine to say.
fn tls_settings(tls: &Tls) -> Result<SslOpts> {
    // The library takes the one of the program. Whoever runs that may have chosen another: then that one stays.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let roots = trusted(tls)?.into_iter().map(|certificate| certificate.to_vec().into()).collect();
    // Read here only to say what is wrong with them.
    own(tls)?;
    let identity = tls.cert.clone().zip(tls.key.clone());
    let identity = identity.map(|(cert, key)| ClientIdentity::new(cert.into(), key.into()));
    Ok(SslOpts::default()
        .with_disable_built_in_roots(true)
        .with_root_certs(roots)
        .with_client_identity(identity))
}
