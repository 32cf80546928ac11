use std::sync::Arc;

use crate::Value;

/// A row as it was read, with its version.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub(super) key: Vec<Value>,
    pub(super) version: Value,
    pub(super) columns: Arc<[String]>,
    pub(super) values: Vec<Value>,
}

impl Record {
    /// The key by which it was read.
    pub fn key(&self) -> &[Value] {
        &self.key
    }

    /// Its version: a number, or a time as text.
    pub fn version(&self) -> &Value {
        &self.version
    }

    /// What it has in a column that was to be read.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.values.get(at)
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// It was made; with the row as it is now.
    Done(Record),
    /// Somebody else has written since; with the row as it is now. Nothing was changed.
    Conflict(Record),
    /// The row is not there any more.
    Gone,
}
