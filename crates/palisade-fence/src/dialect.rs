use std::fmt;

use crate::Value;

/// Which SQL a database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL, and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

impl Dialect {
    /// The placeholders of `sql`, which are question marks here, as this dialect writes them.
    pub fn placeholders(self, sql: &str) -> String {
        if self != Self::Postgres {
            return sql.to_owned();
        }
        let mut numbered = String::with_capacity(sql.len() + 8);
        for (at, part) in sql.split('?').enumerate() {
            if at > 0 {
                numbered.push('$');
                numbered.push_str(&at.to_string());
            }
            numbered.push_str(part);
        }
        numbered
    }

    /// The type of a column for names: compared byte by byte, whatever the collation of the database.
    pub(crate) fn name_type(self) -> &'static str {
        match self {
            Self::Postgres => "TEXT COLLATE \"C\"",
            Self::MySql => "VARBINARY(580)",
            Self::Sqlite => "TEXT",
        }
    }

    /// A name, to be stored in or compared with such a column.
    pub(crate) fn name(self, text: &str) -> Value {
        match self {
            // As bytes, whatever character set the connection has.
            Self::MySql => Value::Bytes(text.as_bytes().to_vec()),
            Self::Postgres | Self::Sqlite => Value::Text(text.to_owned()),
        }
    }

    /// The server's wall clock in milliseconds, at the moment it is asked and not when the transaction began. MySQL's is that of
    /// when the statement began: those of its clocks that go on are local times, of which an hour comes twice a year.
    pub(crate) fn now_millis(self) -> &'static str {
        match self {
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
            Self::MySql => {
                "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000"
            }
            Self::Sqlite => "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        }
    }

    /// The same clock when the statement began: it stands still meanwhile, so that an index can be searched by it.
    pub(crate) fn statement_millis(self) -> &'static str {
        match self {
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)",
            Self::MySql | Self::Sqlite => self.now_millis(),
        }
    }

    /// Begins a statement that inserts a row, or nothing if that would break a unique constraint.
    pub(crate) fn insert(self, into: &str) -> String {
        match self {
            // Turns other errors into warnings too: what is inserted by it is checked before.
            Self::MySql => format!("INSERT IGNORE INTO {into}"),
            Self::Postgres | Self::Sqlite => format!("INSERT INTO {into}"),
        }
    }

    /// Ends what [`Dialect::insert`] began.
    pub(crate) fn or_nothing(self) -> &'static str {
        match self {
            Self::MySql => "",
            Self::Postgres | Self::Sqlite => " ON CONFLICT DO NOTHING",
        }
    }

    /// Has a `SELECT` lock what it reads. SQLite has one lock for all, which every write takes.
    pub(crate) fn for_update(self) -> &'static str {
        match self {
            Self::Postgres | Self::MySql => " FOR UPDATE",
            Self::Sqlite => "",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
            Self::Sqlite => "SQLite",
        })
    }
}

/// The name of a table or a column, checked once: letters, digits and `_` in each part, parts joined by dots.
///
/// It is quoted wherever it is used, so that it means exactly itself: `order` is a column like any other. PostgreSQL folds
/// what is *not* quoted to lower case, so a table made by `CREATE TABLE Accounts` is called `accounts` here.
///
/// ```
/// use palisade_fence::Identifier;
/// assert!(Identifier::new("shop.accounts").is_ok());
/// assert!(Identifier::new("accounts; DROP TABLE accounts").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identifier(String);

impl Identifier {
    /// PostgreSQL cuts what is longer, silently.
    const MAX_BYTES: usize = 63;

    /// Checks `text`.
    ///
    /// # Errors
    /// [`InvalidIdentifier`] says what is allowed.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidIdentifier> {
        let text = text.as_ref();
        let is_part = |part: &str| {
            let mut letters = part.chars();
            letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
                && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
                && part.len() <= Self::MAX_BYTES
        };
        if text.split('.').all(is_part) && text.split('.').count() <= 3 {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidIdentifier(text.chars().take(80).collect()))
        }
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as it stands in a statement.
    pub fn quoted(&self, dialect: Dialect) -> String {
        let mark = if dialect == Dialect::MySql { "`" } else { "\"" };
        let parts: Vec<String> = self.0.split('.').map(|part| format!("{mark}{part}{mark}")).collect();
        parts.join(".")
    }
}

/// A text that cannot be the name of a table or column here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidIdentifier(String);

impl fmt::Display for InvalidIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no name of a table or column: up to three parts joined by dots, each of letters, digits and _, \
             not beginning with a digit, at most {} long",
            self.0,
            Identifier::MAX_BYTES
        )
    }
}

impl std::error::Error for InvalidIdentifier {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_checked_and_quoted() {
        for good in ["a", "_x1", "shop.accounts", "db.shop.accounts", "order"] {
            assert!(Identifier::new(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "1a", "a b", "a\"b", "a`b", "a.b.c.d", "a.", "a?", "ä", "a--", &long] {
            assert!(Identifier::new(bad).is_err(), "{bad}");
        }
        let name = Identifier::new("shop.order").unwrap();
        assert_eq!(name.quoted(Dialect::Postgres), r#""shop"."order""#);
        assert_eq!(name.quoted(Dialect::MySql), "`shop`.`order`");
    }

    #[test]
    fn placeholders_are_numbered_for_postgres() {
        assert_eq!(Dialect::Postgres.placeholders("a = ? AND b = ?"), "a = $1 AND b = $2");
        assert_eq!(Dialect::Sqlite.placeholders("a = ?"), "a = ?");
    }
}
