use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Engine, Error, ErrorKind, Liveness, Modes, Name, Profile, Result, Source};

use super::keys::key_of;
#[cfg(feature = "postgres")]
use super::keys::key_of_sqlx;
use super::seat::Seat;
use crate::SqlEngine;
#[cfg(feature = "mysql")]
use crate::mysql::{self, MySqlConfig, Wake};
#[cfg(feature = "postgres")]
use crate::postgres::{self, Keys, Listen, PostgresConfig, is_pooled};
use crate::server::Facts;

/// What an engine of session locks was told of where it is, and what to do there.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) namespace: String,
    pub(super) connections: usize,
    pub(super) call_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) dialect: Dialect,
}

/// Which server, and where.
#[derive(Debug)]
pub(super) enum Dialect {
    #[cfg(feature = "postgres")]
    Postgres(Arc<PostgresConfig>),
    #[cfg(feature = "mysql")]
    MySql(Arc<MySqlConfig>),
}

#[cfg(feature = "postgres")]
impl From<PostgresConfig> for Terms {
    fn from(mut config: PostgresConfig) -> Self {
        // Nobody waits at the desk.
        config.listen = Listen::Poll;
        Self {
            namespace: config.namespace.clone(),
            connections: config.connections,
            call_timeout: config.call_timeout,
            connect_timeout: config.connect_timeout,
            dialect: Dialect::Postgres(Arc::new(config)),
        }
    }
}

#[cfg(feature = "mysql")]
impl From<MySqlConfig> for Terms {
    fn from(mut config: MySqlConfig) -> Self {
        // Nobody waits at the desk.
        config.wake = Wake::Poll;
        Self {
            namespace: config.namespace.clone(),
            connections: config.connections,
            call_timeout: config.call_timeout,
            connect_timeout: config.connect_timeout,
            dialect: Dialect::MySql(Arc::new(config)),
        }
    }
}

/// What session locks of PostgreSQL promise.
#[cfg(feature = "postgres")]
pub fn profile() -> Profile {
    Profile {
        engine: "postgres-advisory",
        liveness: Liveness::Connection,
        modes: Modes { shared: true, slots: false },
        evict: false,
        ..crate::engine::profile()
    }
}

/// What session locks of MySQL and MariaDB promise.
#[cfg(feature = "mysql")]
pub fn mysql_profile() -> Profile {
    Profile {
        engine: "mysql-advisory",
        tokens: palisade_core::TokenPromise {
            source: "a sequence of the database on MariaDB, a row of it on MySQL; both above the server's clock when it starts",
            assumes: Some("that a server that lost tokens is not set back behind them by its clock"),
        },
        wakeup: palisade_core::Wakeup::Push,
        liveness: Liveness::Connection,
        modes: Modes { shared: false, slots: false },
        evict: false,
        // One statement renews all that a connection holds, but each release is one.
        batch: 500,
        ..mysql::profile()
    }
}

impl Terms {
    /// Refuses settings that contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        match &self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres(config) if config.keys == Keys::Sqlx && !self.namespace.is_empty() => Err(
                Error::new(ErrorKind::Invalid, "keys of sqlx know no namespaces; leave one of the two out"),
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn profile(&self) -> Profile {
        match &self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres(_) => profile(),
            #[cfg(feature = "mysql")]
            Dialect::MySql(_) => mysql_profile(),
        }
    }

    /// The engine for registers, and for what is noted of claims.
    pub(super) async fn desk(&self) -> Result<SqlEngine> {
        match &self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres(config) => SqlEngine::postgres((**config).clone()).await,
            #[cfg(feature = "mysql")]
            Dialect::MySql(config) => SqlEngine::mysql((**config).clone()).await,
        }
    }

    /// Refuses what gives one session to many, or has a lock known to some servers only.
    pub(super) async fn refuse_sharers(&self, desk: &SqlEngine) -> Result<()> {
        let line = desk.inner.link.line().await?;
        let asking = async {
            match &self.dialect {
                #[cfg(feature = "postgres")]
                Dialect::Postgres(config) => {
                    if !is_pooled(config, line.postgres()?).await? {
                        return Ok(());
                    }
                    let message = "a pooler of transactions stands before the server, and gives one session to many: a lock would be whoever's comes next; name the server itself, or use lease rows (mode=rows)";
                    Err(Error::new(ErrorKind::Unsupported, message))
                }
                #[cfg(feature = "mysql")]
                Dialect::MySql(_) => line.mysql()?.refuse_sharers(mysql::ROWS).await,
            }
        };
        let limit = self.connect_timeout * 3;
        tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("the server did not answer within {limit:?}")))
        })
    }

    /// The number that the lock of a name goes by.
    pub(super) fn key_of(&self, name: &Name) -> i64 {
        match &self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres(config) if config.keys == Keys::Sqlx => key_of_sqlx(name),
            _ => key_of(&self.namespace, name),
        }
    }

    /// Who counts the tokens. Those of MySQL's session locks and lease rows are counted apart.
    pub(super) fn source(&self, desk: &SqlEngine) -> Source {
        match &self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres(_) => desk.source(),
            #[cfg(feature = "mysql")]
            Dialect::MySql(_) => Source::new(format!("{}-sessions", desk.source())),
        }
    }

    /// Whether the server lists locks that are held, of which nothing was noted yet.
    pub(super) fn lists_locks(&self) -> bool {
        match &self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres(_) => true,
            #[cfg(feature = "mysql")]
            Dialect::MySql(_) => false,
        }
    }

    /// Makes a connection called `name`, which the server ends once it is silent for `idle`.
    pub(super) async fn sit(&self, name: String, idle: Duration, desk: &SqlEngine) -> Result<(Seat, Facts)> {
        #[cfg(not(feature = "mysql"))]
        let _ = desk;
        let sitting = async {
            match &self.dialect {
                #[cfg(feature = "postgres")]
                Dialect::Postgres(config) => {
                    let (seat, facts) = postgres::Seat::sit(config, name, idle).await?;
                    Ok((Seat::Postgres(Arc::new(seat)), facts))
                }
                #[cfg(feature = "mysql")]
                Dialect::MySql(config) => {
                    let desk = Arc::downgrade(&desk.inner);
                    let (seat, facts) = mysql::Seat::sit(config, name, idle, desk).await?;
                    Ok((Seat::MySql(seat), facts))
                }
            }
        };
        let limit = self.connect_timeout * 3;
        tokio::time::timeout(limit, sitting).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("the server did not answer within {limit:?}")))
        })
    }
}
