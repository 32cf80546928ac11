use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rusqlite::types::{ToSqlOutput, Value as Raw, ValueRef};
use rusqlite::{Connection, Error, Transaction as Tx, TransactionBehavior, params_from_iter};

use super::{Database, Transaction};
use crate::{DbError, DbErrorKind, Dialect, Row, Value};

/// Runs a future that never waits: all that this crate does with a transaction of `rusqlite`, which blocks instead.
///
/// ```
/// use palisade_core::{FencingToken, Source, Token, TokenKind};
/// use palisade_fence::{Fence, at_once};
/// let mut connection = rusqlite::Connection::open_in_memory()?;
/// let mut tx = connection.transaction()?;
/// at_once(Fence::create(&mut tx))?;
/// # let token = FencingToken { token: Token::new(33).unwrap(), kind: TokenKind::Exclusive, slot: None, source: Source::new("a") };
/// at_once(Fence::new("card:7")?.admit(&mut tx, &token))?;
/// tx.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If the future does wait: it belongs to another driver.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("this future waits: await it"),
    }
}

impl Transaction for Tx<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        let mut statement = self.prepare_cached(sql).map_err(told)?;
        let changed = statement.execute(params_from_iter(values)).map_err(told)?;
        Ok(changed as u64)
    }

    async fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        let mut statement = self.prepare_cached(sql).map_err(told)?;
        let columns = statement.column_count();
        let rows = statement
            .query_map(params_from_iter(values), |row| (0..columns).map(|at| row.get(at).map(read)).collect())
            .map_err(told)?;
        rows.collect::<Result<_, _>>().map_err(told)
    }

    async fn commit(self) -> Result<(), DbError> {
        Tx::commit(self).map_err(told)
    }
}

impl Database for Connection {
    type Tx<'a> = Tx<'a>;

    /// Begins with the write lock: a transaction that reads first and writes then may find that another's write has overtaken
    /// its snapshot, and must begin anew.
    async fn begin(&mut self) -> Result<Tx<'_>, DbError> {
        self.transaction_with_behavior(TransactionBehavior::Immediate).map_err(told)
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Bool(truth) => ValueRef::Integer((*truth).into()),
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) | Self::Cast(text, _) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn read(value: Raw) -> Value {
    match value {
        Raw::Null => Value::Null,
        Raw::Integer(number) => Value::Int(number),
        Raw::Real(number) => Value::Real(number),
        Raw::Text(text) => Value::Text(text),
        Raw::Blob(bytes) => Value::Bytes(bytes),
    }
}

fn told(error: Error) -> DbError {
    let told = match &error {
        Error::SqliteFailure(code, message) => {
            let message = message.clone().unwrap_or_else(|| code.to_string());
            DbError::from_code(Dialect::Sqlite, &code.extended_code.to_string(), &message)
        }
        other => DbError::new(DbErrorKind::Other, other.to_string()),
    };
    told.because(error)
}
