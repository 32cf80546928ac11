use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use palisade_fence::Database;
use palisade_testkit::servers::{MariaDbServer, PgBouncer, PostgresServer};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tempfile::TempDir;

use crate::servers::{mariadb, mysql, newer_postgres, postgres};

/// How many connections one test may need.
const CONNECTIONS: u32 = 16;

/// A database that nobody else uses, and a driver to reach it.
pub trait Place {
    /// What begins transactions.
    type Db: Database;

    /// Another way to it.
    fn open(&self) -> impl Future<Output = Result<Self::Db>>;
}

fn new_name() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("trial_{}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// The URL of a database, and its server, which lives as long as somebody uses it.
type At<S> = (String, Arc<S>);

async fn on_postgres(server: Arc<PostgresServer>) -> Result<At<PostgresServer>> {
    let name = new_name();
    server.psql(&format!("CREATE DATABASE {name}")).await?;
    Ok((format!("postgres://postgres@{}/{name}", server.address()), server))
}

/// A database that is reached through a pooler, which gives each transaction whichever connection is free.
type Pooled = (At<PostgresServer>, PgBouncer);

async fn behind_a_pooler(server: Arc<PostgresServer>) -> Result<Pooled> {
    let (url, server) = on_postgres(server).await?;
    let pooler = PgBouncer::start(&server).await?;
    let url = url.replace(&server.address().to_string(), &pooler.address().to_string());
    Ok(((url, server), pooler))
}

async fn on_mysql(server: Arc<MariaDbServer>) -> Result<At<MariaDbServer>> {
    let name = new_name();
    server.sql(&format!("CREATE DATABASE {name}")).await?;
    Ok((format!("mysql://root@{}/{name}", server.address()), server))
}

macro_rules! place {
    ($(#[$doc:meta])* $name:ident, $at:ty, $make:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name($at);

        impl $name {
            /// A new one.
            ///
            /// # Errors
            /// The server does not start, or makes none.
            pub async fn new() -> Result<Self> {
                Ok(Self($make.await?))
            }
        }
    };
}

impl SqlxPostgres {
    /// Where it is.
    pub fn url(&self) -> String {
        self.0.0.clone()
    }
}

impl SqlxMysql {
    /// Where it is.
    pub fn url(&self) -> String {
        self.0.0.clone()
    }
}

place!(
    /// Debian's PostgreSQL by sqlx.
    SqlxPostgres, At<PostgresServer>, async { on_postgres(postgres().await?).await }
);
place!(
    /// MariaDB by sqlx.
    SqlxMysql, At<MariaDbServer>, async { on_mysql(mariadb().await?).await }
);
place!(
    /// A newer PostgreSQL by `tokio-postgres`.
    TokioPostgres, At<PostgresServer>, async { on_postgres(newer_postgres().await?).await }
);
place!(
    /// Debian's PostgreSQL by sqlx, behind a pooler.
    SqlxPooled, Pooled, async { behind_a_pooler(postgres().await?).await }
);
place!(
    /// A newer PostgreSQL by `tokio-postgres`, behind a pooler.
    TokioPooled, Pooled, async { behind_a_pooler(newer_postgres().await?).await }
);
place!(
    /// MySQL by `mysql_async`.
    MysqlAsync, At<MariaDbServer>, async { on_mysql(mysql().await?).await }
);
place!(
    /// SQLite by sqlx.
    SqlxSqlite, TempDir, async { tempfile::tempdir() }
);
place!(
    /// SQLite by rusqlite.
    Rusqlite, TempDir, async { tempfile::tempdir() }
);

impl Place for SqlxPostgres {
    type Db = sqlx::PgPool;

    async fn open(&self) -> Result<Self::Db> {
        Ok(PgPoolOptions::new().max_connections(CONNECTIONS).connect(&self.0.0).await?)
    }
}

impl Place for SqlxMysql {
    type Db = sqlx::MySqlPool;

    async fn open(&self) -> Result<Self::Db> {
        Ok(MySqlPoolOptions::new().max_connections(CONNECTIONS).connect(&self.0.0).await?)
    }
}

impl Place for TokioPostgres {
    type Db = tokio_postgres::Client;

    async fn open(&self) -> Result<Self::Db> {
        by_tokio_postgres(&self.0.0).await
    }
}

impl Place for SqlxPooled {
    type Db = sqlx::PgPool;

    async fn open(&self) -> Result<Self::Db> {
        // Statements that a connection keeps are of no use where the next transaction has another one.
        let options =
            PgConnectOptions::from_str(&self.0.0.0)?.statement_cache_capacity(0).extra_float_digits(None);
        Ok(PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?)
    }
}

impl Place for TokioPooled {
    type Db = tokio_postgres::Client;

    async fn open(&self) -> Result<Self::Db> {
        by_tokio_postgres(&self.0.0.0).await
    }
}

async fn by_tokio_postgres(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    // Ends with its client.
    tokio::spawn(connection);
    Ok(client)
}

impl Place for MysqlAsync {
    type Db = mysql_async::Pool;

    async fn open(&self) -> Result<Self::Db> {
        mysql_async::Pool::from_url(&*self.0.0).context("a URL")
    }
}

impl Place for SqlxSqlite {
    type Db = sqlx::SqlitePool;

    async fn open(&self) -> Result<Self::Db> {
        let file = SqliteConnectOptions::new()
            .filename(self.0.path().join("data"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(20));
        Ok(SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(file).await?)
    }
}

impl Place for Rusqlite {
    type Db = rusqlite::Connection;

    async fn open(&self) -> Result<Self::Db> {
        let connection = rusqlite::Connection::open(self.0.path().join("data"))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.busy_timeout(Duration::from_millis(200))?;
        Ok(connection)
    }
}
