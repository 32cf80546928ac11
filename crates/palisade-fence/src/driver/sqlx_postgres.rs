use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, Connection as _, Row as _, Transaction as Tx, TypeInfo, ValueRef};

use super::{Database, Transaction, unreadable};
use crate::{DbError, DbErrorKind, Dialect, Row, Value};

impl Transaction for Tx<'_, Postgres> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        Ok(bound(self, sql, values).execute(&mut **self).await.map_err(told)?.rows_affected())
    }

    async fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        let rows = bound(self, sql, values).fetch_all(&mut **self).await.map_err(told)?;
        rows.iter().map(read).collect()
    }

    async fn commit(self) -> Result<(), DbError> {
        Tx::commit(self).await.map_err(told)
    }
}

impl Database for sqlx::PgPool {
    type Tx<'a> = Tx<'static, Postgres>;

    async fn begin(&mut self) -> Result<Self::Tx<'_>, DbError> {
        sqlx::PgPool::begin(self).await.map_err(told)
    }
}

/// What is asserted to be safe is made of checked identifiers; values are bound. Statements have names only if this
/// connection keeps some already: behind a pooler of transactions, which callers tell sqlx by keeping none, a name may be
/// another client's.
fn bound(tx: &Tx<'_, Postgres>, sql: &str, values: &[Value]) -> Query<'static, Postgres, PgArguments> {
    let keeps = tx.cached_statements_size() > 0;
    let query = sqlx::query(AssertSqlSafe(Dialect::Postgres.placeholders(sql))).persistent(keeps);
    values.iter().fold(query, |query, value| match value.clone() {
        Value::Null => query.bind(None::<String>),
        Value::Bool(truth) => query.bind(truth),
        Value::Int(number) => query.bind(number),
        Value::Real(number) => query.bind(number),
        Value::Text(text) | Value::Cast(text, _) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}

fn read(row: &PgRow) -> Result<Row, DbError> {
    (0..row.len())
        .map(|at| {
            let raw = row.try_get_raw(at).map_err(told)?;
            if raw.is_null() {
                return Ok(Value::Null);
            }
            let column = row.column(at);
            match column.type_info().name() {
                "BOOL" => row.try_get(at).map(Value::Bool),
                "INT2" => row.try_get::<i16, _>(at).map(|number| Value::Int(number.into())),
                "INT4" => row.try_get::<i32, _>(at).map(|number| Value::Int(number.into())),
                "INT8" => row.try_get(at).map(Value::Int),
                "FLOAT4" => row.try_get::<f32, _>(at).map(|number| Value::Real(number.into())),
                "FLOAT8" => row.try_get(at).map(Value::Real),
                "TEXT" | "VARCHAR" | "CHAR" | "NAME" => row.try_get(at).map(Value::Text),
                "BYTEA" => row.try_get(at).map(Value::Bytes),
                other => return Err(unreadable(column.name(), other)),
            }
            .map_err(told)
        })
        .collect()
}

fn told(error: sqlx::Error) -> DbError {
    let told = match error.as_database_error() {
        Some(database) => {
            let code = database.code().unwrap_or_default();
            DbError::from_code(Dialect::Postgres, &code, database.message())
        }
        None => DbError::new(DbErrorKind::Other, error.to_string()),
    };
    told.because(error)
}
