//! What is different from server to server, behind one face.

use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Change, Claim, ClaimId, Name, Profile, Result, Source};

use crate::advisory::{Note, Seen};
#[cfg(feature = "mysql")]
use crate::mysql::{self, MySqlConfig};
#[cfg(feature = "postgres")]
use crate::postgres::{self, PostgresConfig};
use crate::rows::{Answer, How, Leaving, Stored};

/// What an engine was told of where it is, and what to do there.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    /// How often to look where nobody tells.
    pub(crate) poll: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) server: Server,
}

/// Which server, and where.
#[derive(Debug, Clone)]
pub(crate) enum Server {
    #[cfg(feature = "postgres")]
    Postgres(PostgresConfig),
    #[cfg(feature = "mysql")]
    MySql(MySqlConfig),
}

#[cfg(feature = "postgres")]
impl From<PostgresConfig> for Settings {
    fn from(config: PostgresConfig) -> Self {
        Self {
            namespace: config.namespace.clone(),
            poll: config.poll,
            connect_timeout: config.connect_timeout,
            call_timeout: config.call_timeout,
            server: Server::Postgres(config),
        }
    }
}

#[cfg(feature = "mysql")]
impl From<MySqlConfig> for Settings {
    fn from(config: MySqlConfig) -> Self {
        Self {
            namespace: config.namespace.clone(),
            poll: config.poll,
            connect_timeout: config.connect_timeout,
            call_timeout: config.call_timeout,
            server: Server::MySql(config),
        }
    }
}

/// What a server told when we arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Who counts its tokens.
    pub(crate) source: Source,
    /// Whether what it acknowledges is on its disk.
    pub(crate) syncs: bool,
    /// Since when it has remembered what it granted, at the latest.
    pub(crate) forgot_at: BootInstant,
}

impl Server {
    pub(crate) fn profile(&self) -> Profile {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => crate::engine::profile(),
            #[cfg(feature = "mysql")]
            Self::MySql(_) => mysql::profile(),
        }
    }

    /// Makes a connection. `named`: whether the server keeps statements for it.
    pub(crate) async fn dial(&self, named: bool) -> Result<Line> {
        #[cfg(not(feature = "postgres"))]
        let _ = named;
        Ok(match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => Line::Postgres(postgres::dial(config, named, Arc::new(|_| {})).await?),
            #[cfg(feature = "mysql")]
            Self::MySql(config) => Line::MySql(mysql::dial(config).await?),
        })
    }

    /// Asks who answers there, makes our schema if it must, and checks that it can be trusted with locks.
    pub(crate) async fn arrive(&self, line: &Line) -> Result<Facts> {
        match (self, line) {
            #[cfg(feature = "postgres")]
            (Self::Postgres(config), Line::Postgres(line)) => postgres::arrive(config, line).await,
            #[cfg(feature = "mysql")]
            (Self::MySql(config), Line::MySql(line)) => mysql::arrive(config, line).await,
            #[cfg(all(feature = "postgres", feature = "mysql"))]
            _ => Err(crate::error::unexpected()),
        }
    }

    /// How many calls under way on each connection are reason for one more.
    pub(crate) fn busy(&self) -> usize {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => 3,
            // One statement at a time: the next waits until the one before is done.
            #[cfg(feature = "mysql")]
            Self::MySql(_) => 1,
        }
    }
}

/// A connection. What its methods do is said in each dialect's `server.rs` and `line.rs`.
#[derive(Debug)]
#[cfg_attr(
    all(feature = "postgres", feature = "mysql"),
    expect(clippy::large_enum_variant, reason = "one per connection")
)]
pub(crate) enum Line {
    #[cfg(feature = "postgres")]
    Postgres(postgres::Line),
    #[cfg(feature = "mysql")]
    MySql(mysql::Line),
}

/// Has whichever connection it is do something.
macro_rules! each {
    ($self:expr, $line:ident => $call:expr) => {
        match $self {
            #[cfg(feature = "postgres")]
            Line::Postgres($line) => $call,
            #[cfg(feature = "mysql")]
            Line::MySql($line) => $call,
        }
    };
}

impl Line {
    /// As a connection to PostgreSQL.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(&self) -> Result<&postgres::Line> {
        match self {
            Self::Postgres(line) => Ok(line),
            #[cfg(feature = "mysql")]
            Self::MySql(_) => Err(crate::error::unexpected()),
        }
    }

    /// As a connection to MySQL.
    #[cfg(feature = "mysql")]
    pub(crate) fn mysql(&self) -> Result<&mysql::Line> {
        match self {
            Self::MySql(line) => Ok(line),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(crate::error::unexpected()),
        }
    }

    /// Forgets what was noted of some claims that are session locks, and notes others.
    pub(crate) async fn note(&self, namespace: &str, gone: &[ClaimId], notes: &[Note]) -> Result<()> {
        each!(self, line => line.note(namespace, gone, notes).await)
    }

    /// Who has a session lock and who waits for it; all of the connections whose names begin with `seats` if there is no
    /// key. The names of locks, where they have some, begin with `locks`.
    pub(crate) async fn sessions(
        &self,
        namespace: &str,
        key: Option<i64>,
        seats: &str,
        locks: &str,
    ) -> Result<Vec<Seen>> {
        #[cfg(not(feature = "mysql"))]
        let _ = locks;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(line) => line.sessions(namespace, key, seats).await,
            #[cfg(feature = "mysql")]
            Self::MySql(line) => line.sessions(namespace, key, seats, locks).await,
        }
    }

    /// The sessions that have a lock, or are seen to wait for it, in their order; and which of both.
    pub(crate) async fn in_line(&self, namespace: &str, key: i64, locks: &str) -> Result<Vec<(i64, bool)>> {
        #[cfg(not(feature = "mysql"))]
        let _ = locks;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(line) => {
                let seen = line.sessions(namespace, Some(key), "").await?;
                Ok(seen.into_iter().map(|seen| (seen.pid, seen.granted)).collect())
            }
            #[cfg(feature = "mysql")]
            Self::MySql(line) => line.in_line(namespace, key, locks).await,
        }
    }

    pub(crate) async fn sweep_sessions(&self) -> Result<()> {
        each!(self, line => line.sweep_sessions().await)
    }

    pub(crate) async fn ask(
        &self,
        namespace: &str,
        client: &str,
        owner: &str,
        asks: &[(&Claim, How)],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        each!(self, line => line.ask(namespace, client, owner, asks).await)
    }

    pub(crate) async fn leave(
        &self,
        namespace: &str,
        client: &str,
        leaving: &[Leaving],
    ) -> Result<Vec<Answer>> {
        each!(self, line => line.leave(namespace, client, leaving).await)
    }

    pub(crate) async fn renew(
        &self,
        namespace: &str,
        client: &str,
        claims: &[(&Claim, Option<i64>, Option<i32>)],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        each!(self, line => line.renew(namespace, client, claims).await)
    }

    /// Renews leases: only what a server has put on one is ever renewed by it.
    pub(crate) async fn keep(
        &self,
        namespace: &str,
        client: &str,
        leases: &[(i32, Duration)],
        left: &[(&Claim, Option<i64>, i32)],
    ) -> Result<(Vec<i32>, BootInstant)> {
        each!(self, line => line.keep(namespace, client, leases, left).await)
    }

    /// Has the server get ready for what is asked most.
    pub(crate) async fn warm(&self) {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(line) => line.warm().await,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => {}
        }
    }

    pub(crate) fn stuck(&self) -> Duration {
        each!(self, line => line.stuck())
    }

    pub(crate) fn busy(&self) -> Duration {
        each!(self, line => line.busy())
    }

    /// Has the server keep statements for it: no pooler is in between.
    pub(crate) fn keep_statements(&mut self) {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(line) => line.keep_statements(),
            #[cfg(feature = "mysql")]
            Self::MySql(_) => {}
        }
    }

    /// Whether the server keeps statements for it, and so one process: a pooler does not.
    pub(crate) fn keeps_statements(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(line) => line.keeps_statements(),
            #[cfg(feature = "mysql")]
            Self::MySql(_) => true,
        }
    }

    pub(crate) async fn sees_at_work(&self, other: &Self, limit: Duration) -> Option<bool> {
        match (self, other) {
            #[cfg(feature = "postgres")]
            (Self::Postgres(line), Self::Postgres(other)) => line.sees_at_work(other, limit).await,
            #[cfg(feature = "mysql")]
            (Self::MySql(line), Self::MySql(other)) => line.sees_at_work(other, limit).await,
            #[cfg(all(feature = "postgres", feature = "mysql"))]
            _ => None,
        }
    }

    pub(crate) async fn change(&self, namespace: &str, claim: &Claim, change: &Change) -> Result<Answer> {
        each!(self, line => line.change(namespace, claim, change).await)
    }

    pub(crate) async fn evict(
        &self,
        namespace: &str,
        resource: &Name,
        claim: ClaimId,
        reason: &str,
    ) -> Result<bool> {
        each!(self, line => line.evict(namespace, resource, claim, reason).await)
    }

    pub(crate) async fn stand(
        &self,
        namespace: &str,
        claims: &[Arc<Claim>],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        each!(self, line => line.stand(namespace, claims).await)
    }

    pub(crate) async fn show(
        &self,
        namespace: &str,
        exact: Option<&str>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>> {
        each!(self, line => line.show(namespace, exact, prefix, after, limit).await)
    }

    pub(crate) async fn fetch(&self, namespace: &str, name: &Name) -> Result<Stored> {
        each!(self, line => line.fetch(namespace, name).await)
    }

    pub(crate) async fn fetch_all(&self, namespace: &str, prefix: &str) -> Result<Vec<Stored>> {
        each!(self, line => line.fetch_all(namespace, prefix).await)
    }

    pub(crate) async fn store(&self, namespace: &str, changed: &Stored) -> Result<bool> {
        each!(self, line => line.store(namespace, changed).await)
    }

    pub(crate) async fn sweep(&self) -> Result<()> {
        each!(self, line => line.sweep().await)
    }

    pub(crate) fn silent(&self) -> Duration {
        each!(self, line => line.silent())
    }

    pub(crate) fn calls(&self) -> usize {
        each!(self, line => line.calls())
    }

    pub(crate) fn end(&self) {
        each!(self, line => line.end());
    }

    pub(crate) fn has_ended(&self) -> bool {
        each!(self, line => line.has_ended())
    }

    pub(crate) async fn ended(&self) {
        each!(self, line => line.ended().await);
    }

    pub(crate) async fn answers(&self, limit: Duration) -> bool {
        each!(self, line => line.answers(limit).await)
    }
}
