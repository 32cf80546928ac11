use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use palisade_core::{Error, ErrorKind, Result};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, RedisConnectionInfo, RedisResult, TlsCertificates, Value,
};

use crate::address::HostPort;
use crate::config::{Login, RedisConfig, Servers, Tls};
use crate::error::failed;
use crate::refusal::{Attempt, Whom};
use crate::wire::Wire;

/// What is done with whatever the server says unasked.
pub(crate) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// One connection, over which many commands are under way at once.
#[derive(Clone)]
pub(crate) enum Line {
    /// To one server, and as fast as can be.
    Plain(Wire),
    /// To one server, through what only the library has: TLS.
    Server(MultiplexedConnection),
    Cluster(Box<ClusterConnection>),
}

/// What the library does is boxed: it takes kilobytes, which every call over a plain connection would have to make room for.
impl Line {
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Plain(wire) => wire.send(command).await?,
            Self::Server(server) => Box::pin(server.send_packed_command(command)).await?,
            Self::Cluster(cluster) => cluster.req_packed_command(command).await?,
        }
        .extract_error()
    }

    /// Sends commands with nothing of anyone else's in between.
    pub(crate) async fn send_together(&mut self, commands: &redis::Pipeline) -> RedisResult<Value> {
        match self {
            Self::Plain(wire) => wire.send_together(commands).await,
            Self::Server(server) => Box::pin(commands.query_async(server)).await,
            Self::Cluster(cluster) => Box::pin(commands.query_async(&mut **cluster)).await,
        }
    }

    /// Whoever waits for an answer is told that none will come; but those of the library are not.
    pub(crate) fn close(&self) {
        if let Self::Plain(wire) = self {
            wire.close();
        }
    }

    /// Whether it leads to one server, always the same.
    pub(crate) fn is_to_one(&self) -> bool {
        !matches!(self, Self::Cluster(_))
    }

    pub(crate) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Plain(wire) => {
                wire.send(redis::cmd("SUBSCRIBE").arg(channel)).await?.extract_error().map(drop)
            }
            Self::Server(server) => Box::pin(server.subscribe(channel)).await,
            Self::Cluster(cluster) => Box::pin(cluster.subscribe(channel)).await,
        }
    }
}

/// Connects to the server that decides now, and says which one that is.
pub(crate) async fn dial(config: &RedisConfig, on_push: OnPush) -> Result<(Line, Option<HostPort>)> {
    match &config.servers {
        Servers::Single(address) => Ok((one(config, address, on_push).await?, Some(address.clone()))),
        Servers::Sentinel { sentinels, service } => {
            let address = primary(config, sentinels, service).await?;
            Ok((one(config, &address, on_push).await?, Some(address)))
        }
        Servers::Cluster(nodes) => {
            let line = cluster(config, nodes, on_push).await?;
            Ok((Line::Cluster(Box::new(line)), None))
        }
    }
}

/// Connects to one server, for locks.
async fn one(config: &RedisConfig, address: &HostPort, on_push: OnPush) -> Result<Line> {
    if config.tls.is_some() {
        return server(config, address, &config.login, on_push).await.map(Line::Server);
    }
    check_login(&config.login)?;
    let connecting = Wire::connect(address, &config.login, config.db, on_push);
    let attempt = attempt(config, &config.login);
    within(config.connect_timeout, address, &attempt, connecting).await.map(Line::Plain)
}

/// Connects to all nodes of a Cluster.
async fn cluster(config: &RedisConfig, nodes: &[HostPort], on_push: OnPush) -> Result<ClusterConnection> {
    let client = cluster_client(config, nodes, on_push)?;
    let (limit, attempt) = (config.connect_timeout * 2, attempt(config, &config.login));
    let error = match tokio::time::timeout(limit, client.get_async_connection()).await {
        Ok(Ok(line)) => return Ok(line),
        Ok(Err(error)) => error,
        Err(_) => return Err(attempt.unanswered(&"the Cluster", limit)),
    };
    // The library tells that no node could be reached, but not why: that is asked of the nodes.
    let mut why = None;
    for node in nodes {
        why = server(config, node, &config.login, Arc::new(|_| {})).await.err();
        if why.is_none() {
            break;
        }
    }
    Err(why.unwrap_or_else(|| attempt.refused(&"the Cluster", error)))
}

fn attempt<'a>(config: &RedisConfig, login: &'a Login) -> Attempt<'a> {
    Attempt { tls: config.tls.is_some(), login, whom: Whom::Server }
}

/// Connects to one server by way of the library.
pub(crate) async fn server(
    config: &RedisConfig,
    address: &HostPort,
    login: &Login,
    on_push: OnPush,
) -> Result<MultiplexedConnection> {
    reach(config, address, &attempt(config, login), on_push).await
}

async fn reach(
    config: &RedisConfig,
    address: &HostPort,
    attempt: &Attempt<'_>,
    on_push: OnPush,
) -> Result<MultiplexedConnection> {
    let client = client(config, address, attempt)?;
    let push = move |info: PushInfo| -> Result<(), redis::aio::SendError> {
        on_push(info);
        Ok(())
    };
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        // Calls have a limit of their own, and the link a watch.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1024)
        .set_push_sender(push);
    let connecting = client.get_multiplexed_async_connection_with_config(&settings);
    within(config.connect_timeout, address, attempt, connecting).await
}

/// Asks all Sentinels at once who the primary is. A majority is believed at once; without one, whom most of
/// those name that answer: one that is cut off with an old primary does not know better.
pub(crate) async fn primary(config: &RedisConfig, sentinels: &[HostPort], service: &str) -> Result<HostPort> {
    let mut asked: FuturesUnordered<_> =
        sentinels.iter().map(|sentinel| ask_sentinel(config, sentinel, service)).collect();
    let mut named: HashMap<HostPort, usize> = HashMap::new();
    let mut last = None;
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(Some(primary)) => {
                let votes = named.entry(primary.clone()).or_default();
                *votes += 1;
                if *votes > sentinels.len() / 2 {
                    return Ok(primary);
                }
            }
            Ok(None) => {
                let message = format!("the Sentinels know no service {service:?}");
                last = Some(Error::new(ErrorKind::Unavailable, message));
            }
            Err(error) => last = Some(error),
        }
    }
    let most = named.into_iter().max_by_key(|(_, votes)| *votes).map(|(primary, _)| primary);
    most.ok_or_else(|| last.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "no Sentinel was named")))
}

async fn ask_sentinel(config: &RedisConfig, sentinel: &HostPort, service: &str) -> Result<Option<HostPort>> {
    let mut config = config.clone();
    config.db = 0;
    let attempt = Attempt { whom: Whom::Sentinel, ..attempt(&config, &config.sentinel_login) };
    let mut line = reach(&config, sentinel, &attempt, Arc::new(|_| {})).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let asking = command.query_async::<Option<(String, u16)>>(&mut line);
    let answer = within(config.connect_timeout, sentinel, &attempt, asking).await?;
    Ok(answer.map(|(host, port)| HostPort { host, port }))
}

/// Bounds a step of connecting, and says where and why it failed.
async fn within<T>(
    limit: Duration,
    place: &HostPort,
    attempt: &Attempt<'_>,
    step: impl Future<Output = RedisResult<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(attempt.refused(place, error)),
        Err(_) => Err(attempt.unanswered(place, limit)),
    }
}

fn client(config: &RedisConfig, address: &HostPort, attempt: &Attempt<'_>) -> Result<Client> {
    let info = info(config, address, attempt.login)?;
    match &config.tls {
        None => Client::open(info),
        Some(tls) => Client::build_with_tls(info, certificates(tls)?),
    }
    .map_err(|error| attempt.refused(address, error))
}

fn info(config: &RedisConfig, address: &HostPort, login: &Login) -> Result<ConnectionInfo> {
    let (host, port) = (address.host.clone(), address.port);
    let address = match config.tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let mut server = RedisConnectionInfo::default().set_db(config.db).set_protocol(ProtocolVersion::RESP3);
    check_login(login)?;
    if let Some(user) = &login.user {
        server = server.set_username(user);
    }
    if let Some(password) = &login.password {
        server = server.set_password(password);
    }
    let info = address.into_connection_info().map_err(failed)?;
    Ok(info.set_redis_settings(server).set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// Without a password nobody logs in, and everything would be done as the default user.
fn check_login(login: &Login) -> Result<()> {
    match (&login.user, &login.password) {
        (Some(user), None) => {
            let message = format!(
                "user {user:?} has no password; write user:password@, or name where it is kept with password-env or password-file; for a user without one write user:@"
            );
            Err(Error::new(ErrorKind::Invalid, message))
        }
        _ => Ok(()),
    }
}

fn cluster_client(config: &RedisConfig, nodes: &[HostPort], on_push: OnPush) -> Result<ClusterClient> {
    let infos: Vec<ConnectionInfo> =
        nodes.iter().map(|node| info(config, node, &config.login)).collect::<Result<_>>()?;
    let push = move |info: PushInfo| -> Result<(), redis::aio::SendError> {
        on_push(info);
        Ok(())
    };
    let mut builder = ClusterClientBuilder::new(infos)
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(TcpSettings::default().set_nodelay(true))
        .connection_timeout(config.connect_timeout)
        .response_timeout(config.call_timeout)
        .push_sender(push);
    if let Some(tls) = &config.tls {
        builder = builder.tls(redis::cluster::TlsMode::Secure).certs(certificates(tls)?);
    }
    builder.build().map_err(|error| attempt(config, &config.login).refused(&"the Cluster", error))
}

fn certificates(tls: &Tls) -> Result<TlsCertificates> {
    // Whoever runs the program may have chosen another one: then that one stays.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client_tls = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: pem(cert)?, client_key: pem(key)? }),
        (None, None) => None,
        _ => return Err(Error::new(ErrorKind::Invalid, "tls-cert and tls-key go together")),
    };
    Ok(TlsCertificates { client_tls, root_cert: tls.ca.as_deref().map(pem).transpose()? })
}

fn pem(path: &Path) -> Result<Vec<u8>> {
    let bad = |why: String| Error::new(ErrorKind::Invalid, format!("{} {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    // The library would take it for a list of nobody.
    if !String::from_utf8_lossy(&bytes).contains("-----BEGIN ") {
        return Err(bad("is no PEM file".to_owned()));
    }
    Ok(bytes)
}
