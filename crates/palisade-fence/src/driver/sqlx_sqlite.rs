use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Column, Row as _, Transaction as Tx, TypeInfo, ValueRef};

use super::{Database, Transaction, unreadable};
use crate::{DbError, DbErrorKind, Dialect, Row, Value};

impl Transaction for Tx<'_, Sqlite> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        Ok(bound(sql, values).execute(&mut **self).await.map_err(told)?.rows_affected())
    }

    async fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        let rows = bound(sql, values).fetch_all(&mut **self).await.map_err(told)?;
        rows.iter().map(read).collect()
    }

    async fn commit(self) -> Result<(), DbError> {
        Tx::commit(self).await.map_err(told)
    }
}

impl Database for sqlx::SqlitePool {
    type Tx<'a> = Tx<'static, Sqlite>;

    /// Begins with the write lock: a transaction that reads first and writes then may find that another's write has overtaken
    /// its snapshot, and must begin anew.
    async fn begin(&mut self) -> Result<Self::Tx<'_>, DbError> {
        self.begin_with("BEGIN IMMEDIATE").await.map_err(told)
    }
}

/// What is asserted to be safe is made of checked identifiers; values are bound.
fn bound(sql: &str, values: &[Value]) -> Query<'static, Sqlite, SqliteArguments> {
    let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    values.iter().fold(query, |query, value| match value.clone() {
        Value::Null => query.bind(None::<String>),
        Value::Bool(truth) => query.bind(truth),
        Value::Int(number) => query.bind(number),
        Value::Real(number) => query.bind(number),
        Value::Text(text) | Value::Cast(text, _) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}

fn read(row: &SqliteRow) -> Result<Row, DbError> {
    (0..row.len())
        .map(|at| {
            let raw = row.try_get_raw(at).map_err(told)?;
            if raw.is_null() {
                return Ok(Value::Null);
            }
            // By the type of this value: a column of SQLite's may hold any.
            let kind = raw.type_info().name().to_owned();
            match &*kind {
                "INTEGER" | "INT4" | "BOOLEAN" => row.try_get_unchecked(at).map(Value::Int),
                "REAL" => row.try_get_unchecked(at).map(Value::Real),
                "BLOB" => row.try_get_unchecked(at).map(Value::Bytes),
                "TEXT" | "DATE" | "TIME" | "DATETIME" => row.try_get_unchecked(at).map(Value::Text),
                other => return Err(unreadable(row.column(at).name(), other)),
            }
            .map_err(told)
        })
        .collect()
}

fn told(error: sqlx::Error) -> DbError {
    let told = match error.as_database_error() {
        Some(database) => {
            let code = database.code().unwrap_or_default();
            DbError::from_code(Dialect::Sqlite, &code, database.message())
        }
        None => DbError::new(DbErrorKind::Other, error.to_string()),
    };
    told.because(error)
}
