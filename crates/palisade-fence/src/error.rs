use std::error::Error as StdError;
use std::fmt;

use crate::Dialect;

/// The database, or its driver, said no.
#[derive(Debug)]
pub struct DbError {
    kind: DbErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of thing went wrong, and so what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DbErrorKind {
    /// A deadlock, a serialization failure, or a lock that somebody else's write has overtaken. Nothing of this transaction
    /// took effect, or will: roll it back, and do all of it again.
    Retry,
    /// A lock was not to be had in time. On PostgreSQL the transaction is over; on MySQL only the statement was undone.
    LockTimeout,
    /// The statement was cancelled: it took longer than the server lets it (`statement_timeout` of PostgreSQL's, `max_execution_time`
    /// of MySQL's, `max_statement_time` of MariaDB's), or somebody ended it. On PostgreSQL the transaction is over.
    Cancelled,
    /// A unique constraint was in the way.
    Duplicate,
    /// A table is missing: call `create`, or have your migrations do what `schema` prints.
    MissingTable,
    /// This database cannot do it.
    Unsupported,
    /// What was asked for can never be.
    Invalid,
    /// What is stored cannot be read.
    Corrupt,
    /// Anything else.
    Other,
}

impl DbError {
    /// An error of `kind`.
    pub fn new(kind: DbErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> DbErrorKind {
        self.kind
    }

    /// Whether the whole transaction should be done again.
    pub fn is_retry(&self) -> bool {
        self.kind == DbErrorKind::Retry
    }

    /// An error that a server told by its code: an SQLSTATE of PostgreSQL, a number of MySQL's or SQLite's.
    pub fn from_code(dialect: Dialect, code: &str, message: &str) -> Self {
        let kind = match dialect {
            Dialect::Postgres => postgres(code),
            Dialect::MySql => mysql(code),
            Dialect::Sqlite => sqlite(code, message),
        };
        Self::new(kind, format!("{dialect} says: {message} ({code})"))
    }
}

fn postgres(code: &str) -> DbErrorKind {
    match code {
        "40001" | "40P01" => DbErrorKind::Retry,
        "55P03" => DbErrorKind::LockTimeout,
        "57014" => DbErrorKind::Cancelled,
        "23505" => DbErrorKind::Duplicate,
        "42P01" => DbErrorKind::MissingTable,
        "0A000" => DbErrorKind::Unsupported,
        _ => DbErrorKind::Other,
    }
}

fn mysql(code: &str) -> DbErrorKind {
    match code {
        // Deadlock; a row that changed since the snapshot (MariaDB).
        "1213" | "1020" => DbErrorKind::Retry,
        // The wait took too long, which is also what MariaDB says to NOWAIT; MySQL has a code for that.
        "1205" | "3572" => DbErrorKind::LockTimeout,
        // Ended by somebody; too slow, as MariaDB and MySQL say it.
        "1317" | "1969" | "3024" => DbErrorKind::Cancelled,
        "1062" => DbErrorKind::Duplicate,
        "1146" => DbErrorKind::MissingTable,
        _ => DbErrorKind::Other,
    }
}

fn sqlite(code: &str, message: &str) -> DbErrorKind {
    let code: u32 = code.parse().unwrap_or_default();
    match (code & 0xff, code) {
        // Busy, locked, and a snapshot that another's write has overtaken.
        (5 | 6, _) => DbErrorKind::Retry,
        (9, _) => DbErrorKind::Cancelled,
        (_, 1555 | 2067) => DbErrorKind::Duplicate,
        (1, _) if message.contains("no such table") => DbErrorKind::MissingTable,
        _ => DbErrorKind::Other,
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.kind {
            DbErrorKind::Retry => f.write_str("; do the whole transaction again"),
            DbErrorKind::MissingTable => f.write_str("; `create` makes the table"),
            _ => Ok(()),
        }
    }
}

impl StdError for DbError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<crate::InvalidIdentifier> for DbError {
    fn from(problem: crate::InvalidIdentifier) -> Self {
        Self::new(DbErrorKind::Invalid, problem.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_follows_from_the_code() {
        for (dialect, code, kind) in [
            (Dialect::Postgres, "40001", DbErrorKind::Retry),
            (Dialect::Postgres, "40P01", DbErrorKind::Retry),
            (Dialect::Postgres, "55P03", DbErrorKind::LockTimeout),
            (Dialect::Postgres, "57014", DbErrorKind::Cancelled),
            (Dialect::MySql, "3024", DbErrorKind::Cancelled),
            (Dialect::Sqlite, "9", DbErrorKind::Cancelled),
            (Dialect::MySql, "1213", DbErrorKind::Retry),
            (Dialect::MySql, "1205", DbErrorKind::LockTimeout),
            (Dialect::Sqlite, "5", DbErrorKind::Retry),
            (Dialect::Sqlite, "517", DbErrorKind::Retry),
            (Dialect::Sqlite, "1555", DbErrorKind::Duplicate),
        ] {
            assert_eq!(DbError::from_code(dialect, code, "x").kind(), kind, "{dialect} {code}");
        }
        let missing = DbError::from_code(Dialect::Sqlite, "1", "no such table: palisade_fence");
        assert_eq!(missing.kind(), DbErrorKind::MissingTable);
    }
}
