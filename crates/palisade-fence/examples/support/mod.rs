//! What the examples have in common: a database by its URL, and two rivals who meet at the worst moment.

#![allow(dead_code, reason = "not every example needs all of it")]

use std::time::Duration;

use palisade_fence::{Database, DbError, Dialect, Transaction, Value};
use tokio::sync::Barrier;

/// Far longer than anything takes.
const LONG: Duration = Duration::from_secs(30);

/// A database of whichever kind: by the URL that was given, or a file of SQLite's that ends with the example.
#[derive(Clone)]
pub(crate) enum AnyDatabase {
    Postgres(sqlx::PgPool),
    MySql(sqlx::MySqlPool),
    Sqlite(sqlx::SqlitePool),
}

impl AnyDatabase {
    /// Connects to the URL of the command line; and a folder to be kept until the end.
    pub(crate) async fn from_args() -> anyhow::Result<(Self, tempfile::TempDir)> {
        let folder = tempfile::tempdir()?;
        let file = format!("sqlite:{}/example?mode=rwc", folder.path().display());
        let url = std::env::args().nth(1).unwrap_or(file);
        let database = match url.split(':').next() {
            Some("postgres" | "postgresql") => Self::Postgres(sqlx::PgPool::connect(&url).await?),
            Some("mysql" | "mariadb") => Self::MySql(sqlx::MySqlPool::connect(&url).await?),
            _ => Self::Sqlite(sqlx::SqlitePool::connect(&url).await?),
        };
        Ok((database, folder))
    }
}

/// Does one statement in a transaction of its own, and says how many rows it changed.
pub(crate) async fn change<D: Database>(
    database: &mut D,
    sql: &str,
    values: &[Value],
) -> Result<u64, DbError> {
    let mut tx = database.begin().await?;
    let changed = tx.execute(sql, values).await?;
    tx.commit().await?;
    Ok(changed)
}

/// Reads one value in a transaction of its own.
pub(crate) async fn look<D: Database>(database: &mut D, sql: &str) -> Result<Option<Value>, DbError> {
    let mut tx = database.begin().await?;
    let rows = tx.query(sql, &[]).await?;
    tx.commit().await?;
    Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()))
}

/// Where two rivals meet after both have read and before either writes: the worst moment.
pub(crate) struct Meeting(Barrier);

impl Meeting {
    pub(crate) fn new() -> Self {
        Self(Barrier::new(2))
    }

    /// Waits for the other one, who is sure to come.
    pub(crate) async fn both(&self) {
        let _ = tokio::time::timeout(LONG, self.0.wait()).await;
    }

    /// Gives the other one a chance to come, if what protects us lets it.
    pub(crate) async fn perhaps(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(50), self.0.wait()).await;
    }
}

/// Whether this database locks rows; SQLite locks all of itself.
pub(crate) fn has_row_locks(dialect: Dialect) -> bool {
    dialect != Dialect::Sqlite
}
