//! Real databases, and every driver to reach them, for the tests beside.

pub mod campaign;
mod place;
mod servers;

pub use palisade_testkit::trial::{PATIENCE, soon, until};
pub use place::{
    MysqlAsync, Place, Rusqlite, SqlxMysql, SqlxPooled, SqlxPostgres, SqlxSqlite, TokioPooled, TokioPostgres,
};
pub use servers::{mariadb, mysql, newer_postgres, postgres};

use anyhow::Result;
use palisade_core::{FencingToken, Source, Token, TokenKind};
use palisade_fence::{Database, Transaction, Value};

/// A token of an exclusive grant.
///
/// # Panics
/// That is no token.
pub fn token(number: u64, source: &str) -> FencingToken {
    let token = Token::new(number).expect("a token");
    FencingToken { token, kind: TokenKind::Exclusive, slot: None, source: Source::new(source) }
}

/// Runs statements in a transaction of their own.
///
/// # Errors
/// One fails.
pub async fn run<D: Database>(database: &mut D, statements: &[&str]) -> Result<()> {
    for statement in statements {
        let mut tx = database.begin().await?;
        tx.execute(statement, &[]).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// The number that a query gives.
///
/// # Errors
/// It fails, or gives none.
pub async fn number<D: Database>(database: &mut D, query: &str) -> Result<i64> {
    let mut tx = database.begin().await?;
    let rows = tx.query(query, &[]).await?;
    tx.commit().await?;
    let number = rows.first().and_then(|row| row.first()).and_then(Value::as_i64);
    number.ok_or_else(|| anyhow::anyhow!("{query} gave no number: {rows:?}"))
}

/// Declares each case as a test on every driver.
#[macro_export]
macro_rules! on_every_driver {
    ($($case:ident),* $(,)?) => {
        $crate::on_every_driver!(@ sqlx_sqlite, SqlxSqlite, $($case),*);
        $crate::on_every_driver!(@ rusqlite, Rusqlite, $($case),*);
        $crate::on_every_server!($($case),*);
    };
    (@ $module:ident, $place:ident, $($case:ident),*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $case() -> anyhow::Result<()> {
                    super::$case($crate::$place::new().await?).await
                }
            )*
        }
    };
}

/// Declares each case as a test on every driver of a server, where transactions can wait for each other.
#[macro_export]
macro_rules! on_every_server {
    ($($case:ident),* $(,)?) => {
        $crate::on_every_driver!(@ sqlx_postgres, SqlxPostgres, $($case),*);
        $crate::on_every_driver!(@ sqlx_mysql, SqlxMysql, $($case),*);
        $crate::on_every_driver!(@ tokio_postgres, TokioPostgres, $($case),*);
        $crate::on_every_driver!(@ mysql_async, MysqlAsync, $($case),*);
        $crate::on_every_driver!(@ sqlx_pooled, SqlxPooled, $($case),*);
        $crate::on_every_driver!(@ tokio_pooled, TokioPooled, $($case),*);
    };
}
