use mysql_async::prelude::Queryable;
use mysql_async::{Error, Params, Pool, Transaction as Tx, TxOpts};

use super::{Database, Transaction};
use crate::{DbError, DbErrorKind, Dialect, Row, Value};

impl Transaction for Tx<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        self.exec_drop(sql, bound(values)).await.map_err(told)?;
        Ok(self.affected_rows())
    }

    async fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        let rows: Vec<mysql_async::Row> = self.exec(sql, bound(values)).await.map_err(told)?;
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(read).collect()).collect())
    }

    async fn commit(self) -> Result<(), DbError> {
        Tx::commit(self).await.map_err(told)
    }
}

impl Database for Pool {
    type Tx<'a> = Tx<'static>;

    async fn begin(&mut self) -> Result<Self::Tx<'_>, DbError> {
        self.start_transaction(TxOpts::default()).await.map_err(told)
    }
}

fn bound(values: &[Value]) -> Params {
    if values.is_empty() {
        return Params::Empty;
    }
    let bound = values.iter().map(|value| match value.clone() {
        Value::Null => mysql_async::Value::NULL,
        Value::Bool(truth) => mysql_async::Value::Int(truth.into()),
        Value::Int(number) => mysql_async::Value::Int(number),
        Value::Real(number) => mysql_async::Value::Double(number),
        Value::Text(text) | Value::Cast(text, _) => mysql_async::Value::Bytes(text.into_bytes()),
        Value::Bytes(bytes) => mysql_async::Value::Bytes(bytes),
    });
    Params::Positional(bound.collect())
}

fn read(value: mysql_async::Value) -> Value {
    use mysql_async::Value as Raw;
    match value {
        Raw::NULL => Value::Null,
        Raw::Bytes(bytes) => Value::of_unclear(bytes),
        Raw::Int(number) => Value::Int(number),
        // Greater ones than an i64 holds go as text.
        Raw::UInt(number) => i64::try_from(number).map_or_else(|_| number.to_string().into(), Value::Int),
        Raw::Float(number) => Value::Real(number.into()),
        Raw::Double(number) => Value::Real(number),
        date @ (Raw::Date(..) | Raw::Time(..)) => date.as_sql(true).trim_matches('\'').into(),
    }
}

fn told(error: Error) -> DbError {
    let told = match &error {
        Error::Server(server) => {
            DbError::from_code(Dialect::MySql, &server.code.to_string(), &server.message)
        }
        other => DbError::new(DbErrorKind::Other, other.to_string()),
    };
    told.because(error)
}
