use sqlx::mysql::{MySql, MySqlArguments, MySqlDatabaseError, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, Row as _, Transaction as Tx, TypeInfo, ValueRef};

use super::{Database, Transaction, unreadable};
use crate::{DbError, DbErrorKind, Dialect, Row, Value};

impl Transaction for Tx<'_, MySql> {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
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

impl Database for sqlx::MySqlPool {
    type Tx<'a> = Tx<'static, MySql>;

    async fn begin(&mut self) -> Result<Self::Tx<'_>, DbError> {
        sqlx::MySqlPool::begin(self).await.map_err(told)
    }
}

/// What is asserted to be safe is made of checked identifiers; values are bound.
fn bound(sql: &str, values: &[Value]) -> Query<'static, MySql, MySqlArguments> {
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

fn read(row: &MySqlRow) -> Result<Row, DbError> {
    (0..row.len())
        .map(|at| {
            let raw = row.try_get_raw(at).map_err(told)?;
            if raw.is_null() {
                return Ok(Value::Null);
            }
            let column = row.column(at);
            match column.type_info().name() {
                "BOOLEAN" | "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => {
                    row.try_get_unchecked(at).map(Value::Int)
                }
                name if name.ends_with("INT UNSIGNED") => {
                    let number: u64 = row.try_get_unchecked(at).map_err(told)?;
                    // Greater ones than an i64 holds go as text.
                    return Ok(i64::try_from(number).map_or_else(|_| number.to_string().into(), Value::Int));
                }
                "FLOAT" => row.try_get_unchecked::<f32, _>(at).map(|number| Value::Real(number.into())),
                "DOUBLE" => row.try_get_unchecked(at).map(Value::Real),
                "DATE" | "TIME" | "DATETIME" | "TIMESTAMP" | "BIT" | "GEOMETRY" => {
                    return Err(unreadable(column.name(), column.type_info().name()));
                }
                _ => row.try_get_unchecked::<Vec<u8>, _>(at).map(Value::of_unclear),
            }
            .map_err(told)
        })
        .collect()
}

fn told(error: sqlx::Error) -> DbError {
    let told = match error
        .as_database_error()
        .and_then(|database| database.try_downcast_ref::<MySqlDatabaseError>())
    {
        Some(database) => {
            DbError::from_code(Dialect::MySql, &database.number().to_string(), database.message())
        }
        None => DbError::new(DbErrorKind::Other, error.to_string()),
    };
    told.because(error)
}
