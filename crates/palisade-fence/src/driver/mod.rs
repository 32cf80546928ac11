//! What this crate needs of a driver, and the drivers that have it.

use std::future::Future;

use crate::{DbError, Dialect, Row, Value};

#[cfg(feature = "mysql-async")]
mod mysql_async;
#[cfg(feature = "rusqlite")]
mod rusqlite;
#[cfg(feature = "sqlx-mysql")]
mod sqlx_mysql;
#[cfg(feature = "sqlx-postgres")]
mod sqlx_postgres;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

#[cfg(feature = "rusqlite")]
pub use self::rusqlite::at_once;

/// A transaction that the caller has begun and will commit: one statement at a time.
///
/// Only transactions have this trait, never bare connections: a lock that a statement takes must last until the caller's own
/// writes are committed.
///
/// | feature | type |
/// |---|---|
/// | `sqlx-postgres`, `sqlx-mysql`, `sqlx-sqlite` | `sqlx::Transaction<'_, DB>` |
/// | `tokio-postgres` | `tokio_postgres::Transaction<'_>` |
/// | `mysql-async` | `mysql_async::Transaction<'_>` |
/// | `rusqlite` | `rusqlite::Transaction<'_>`; its futures are always ready: [`at_once`](crate::at_once) |
///
/// The futures are `Send` if the driver's are.
pub trait Transaction {
    /// The SQL it speaks.
    fn dialect(&self) -> Dialect;

    /// Runs a statement, whose placeholders are `?` in every dialect, and says how many rows it changed.
    fn execute(&mut self, sql: &str, values: &[Value]) -> impl Future<Output = Result<u64, DbError>>;

    /// Runs a statement and gives its rows.
    fn query(&mut self, sql: &str, values: &[Value]) -> impl Future<Output = Result<Vec<Row>, DbError>>;

    /// Ends it for good. An error on the way may leave it in doubt whether it was.
    fn commit(self) -> impl Future<Output = Result<(), DbError>>
    where
        Self: Sized;
}

/// Where transactions begin: a pool or a client.
///
/// For what cannot be done in one transaction of the caller's, such as trying again in a new one.
pub trait Database {
    /// Its transactions.
    type Tx<'a>: Transaction
    where
        Self: 'a;

    /// Begins a transaction.
    fn begin(&mut self) -> impl Future<Output = Result<Self::Tx<'_>, DbError>>;
}

/// A column of a type that is read by a cast only.
#[cfg(any(
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "tokio-postgres",
    feature = "sqlx-sqlite"
))]
fn unreadable(column: &str, kind: &str) -> DbError {
    use crate::DbErrorKind;
    DbError::new(
        DbErrorKind::Invalid,
        format!("column {column} is of type {kind}: read it by a cast to text"),
    )
}
