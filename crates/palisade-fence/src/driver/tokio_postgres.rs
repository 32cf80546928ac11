use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Transaction as Tx};

use super::{Database, Transaction, unreadable};
use crate::{DbError, DbErrorKind, Dialect, Row, Value};

/// Statements are not named, and so work behind a pooler that changes servers between transactions.
impl Transaction for Tx<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        let sql = Dialect::Postgres.placeholders(sql);
        self.execute_typed(&sql, &bound(values)).await.map_err(told)
    }

    async fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        let sql = Dialect::Postgres.placeholders(sql);
        let rows = self.query_typed(&sql, &bound(values)).await.map_err(told)?;
        rows.iter().map(read).collect()
    }

    async fn commit(self) -> Result<(), DbError> {
        Tx::commit(self).await.map_err(told)
    }
}

impl Database for Client {
    type Tx<'a> = Tx<'a>;

    async fn begin(&mut self) -> Result<Tx<'_>, DbError> {
        self.transaction().await.map_err(told)
    }
}

fn bound(values: &[Value]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    const NOTHING: Option<&str> = None;
    values
        .iter()
        .map(|value| match value {
            Value::Null => (&NOTHING as &(dyn ToSql + Sync), Type::TEXT),
            Value::Bool(truth) => (truth as _, Type::BOOL),
            Value::Int(number) => (number as _, Type::INT8),
            Value::Real(number) => (number as _, Type::FLOAT8),
            Value::Text(text) | Value::Cast(text, _) => (text as _, Type::TEXT),
            Value::Bytes(bytes) => (bytes as _, Type::BYTEA),
        })
        .collect()
}

fn read(row: &tokio_postgres::Row) -> Result<Row, DbError> {
    let columns = row.columns().iter().enumerate();
    columns
        .map(|(at, column)| {
            let value = match *column.type_() {
                Type::BOOL => row.try_get::<_, Option<bool>>(at).map(Value::from),
                Type::INT2 => row.try_get::<_, Option<i16>>(at).map(|number| number.map(i64::from).into()),
                Type::INT4 => row.try_get::<_, Option<i32>>(at).map(Value::from),
                Type::INT8 => row.try_get::<_, Option<i64>>(at).map(Value::from),
                Type::FLOAT4 => row.try_get::<_, Option<f32>>(at).map(|number| number.map(f64::from).into()),
                Type::FLOAT8 => row.try_get::<_, Option<f64>>(at).map(Value::from),
                Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => {
                    row.try_get::<_, Option<String>>(at).map(Value::from)
                }
                Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(at).map(Value::from),
                ref other => return Err(unreadable(column.name(), other.name())),
            };
            value.map_err(told)
        })
        .collect()
}

fn told(error: Error) -> DbError {
    // The driver's own text is no more than "db error".
    let told = match error.as_db_error() {
        Some(database) => DbError::from_code(Dialect::Postgres, database.code().code(), database.message()),
        None => DbError::new(DbErrorKind::Other, error.to_string()),
    };
    told.because(error)
}
