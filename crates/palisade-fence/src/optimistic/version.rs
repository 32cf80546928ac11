use crate::{Dialect, Identifier};

/// What a row's version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionKind {
    Number,
    Time,
}

impl VersionKind {
    /// The version as it is read and compared: the same in every session.
    pub(super) fn shown(self, column: &Identifier, dialect: Dialect) -> String {
        let name = column.quoted(dialect);
        match (self, dialect) {
            (Self::Number, _) => name,
            // As a number: text would follow the session's time zone.
            (Self::Time, Dialect::Postgres) => format!("CAST(EXTRACT(EPOCH FROM {name}) AS TEXT)"),
            (Self::Time, Dialect::MySql) => format!("CAST({name} AS CHAR)"),
            (Self::Time, Dialect::Sqlite) => format!("CAST({name} AS TEXT)"),
        }
    }

    /// The next version. A time is never the same or an earlier one, also if the clock was set back.
    pub(super) fn next(self, column: &Identifier, dialect: Dialect) -> String {
        let name = column.quoted(dialect);
        match (self, dialect) {
            (Self::Number, _) => format!("{name} + 1"),
            (Self::Time, Dialect::Postgres) => {
                format!("GREATEST(clock_timestamp(), {name} + INTERVAL '1 microsecond')")
            }
            (Self::Time, Dialect::MySql) => format!("GREATEST(SYSDATE(6), {name} + INTERVAL 1 MICROSECOND)"),
            (Self::Time, Dialect::Sqlite) => {
                let format = "'%Y-%m-%d %H:%M:%f'";
                format!("MAX(strftime({format}, 'now'), strftime({format}, {name}, '+0.001 seconds'))")
            }
        }
    }
}
