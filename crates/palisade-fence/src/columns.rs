use crate::{Dialect, Identifier, Value};

/// A column of the caller's, and how it is read.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: Identifier,
    pub(crate) as_text: bool,
}

impl Column {
    fn expression(&self, dialect: Dialect) -> String {
        let name = self.name.quoted(dialect);
        match dialect {
            _ if !self.as_text => name,
            Dialect::Postgres | Dialect::Sqlite => format!("CAST({name} AS TEXT)"),
            Dialect::MySql => format!("CAST({name} AS CHAR)"),
        }
    }
}

/// What follows `SELECT`; a mere 1 for no columns.
pub(crate) fn selected(columns: &[Column], dialect: Dialect) -> String {
    let all: Vec<String> = columns.iter().map(|column| column.expression(dialect)).collect();
    if all.is_empty() { "1".to_owned() } else { all.join(", ") }
}

/// What follows `WHERE`.
pub(crate) fn equal(keys: &[(Identifier, Value)], dialect: Dialect) -> String {
    let all: Vec<String> = keys
        .iter()
        .map(|(name, value)| match value {
            Value::Null => format!("{} IS NULL", name.quoted(dialect)),
            value => format!("{} = {}", name.quoted(dialect), value.placeholder()),
        })
        .collect();
    all.join(" AND ")
}
