use crate::{DbError, DbErrorKind};

/// A value that is bound to a statement, or read from a column.
///
/// What a column holds that is none of these (a date, a decimal number, a UUID) is read as text, by a cast, and written by
/// [`Value::cast`].
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false; on MySQL and SQLite it comes back as a number.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Another number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes. MySQL tells them from text only by their look: what is valid UTF-8 comes back as text.
    Bytes(Vec<u8>),
    /// Text that the database casts to a type of its own; see [`Value::cast`].
    Cast(String, SqlType),
}

impl Value {
    /// Text that the database is to cast to one of its types, such as `uuid`, `numeric(12, 2)` or `timestamptz`.
    ///
    /// # Errors
    /// That is no type.
    pub fn cast(text: impl Into<String>, sql_type: &str) -> Result<Self, DbError> {
        Ok(Self::Cast(text.into(), SqlType::new(sql_type)?))
    }

    /// Where it stands in a statement that the caller's types are in.
    pub(crate) fn placeholder(&self) -> String {
        match self {
            // Bound, it would need a type.
            Self::Null => "NULL".to_owned(),
            Self::Cast(_, SqlType(name)) => format!("CAST(? AS {name})"),
            _ => "?".to_owned(),
        }
    }

    /// Those of `values` that [`Value::placeholder`] has a place for.
    pub(crate) fn bound<'a>(values: impl IntoIterator<Item = &'a Self>) -> Vec<Self> {
        values.into_iter().filter(|value| !value.is_null()).cloned().collect()
    }

    /// The number, also if it comes as text.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(truth) => Some(i64::from(*truth)),
            Self::Text(text) | Self::Cast(text, _) => text.parse().ok(),
            Self::Null | Self::Real(_) | Self::Bytes(_) => None,
        }
    }

    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Cast(text, _) => Some(text),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The bytes of a text or of bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) | Self::Cast(text, _) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Whether there is nothing.
    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// What a server that does not tell text from bytes sent.
    #[cfg(any(feature = "sqlx-mysql", feature = "mysql-async"))]
    pub(crate) fn of_unclear(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|other| Self::Bytes(other.into_bytes()), Self::Text)
    }
}

/// The name of one of a database's types, checked once: words, then perhaps numbers in brackets and more words, then perhaps `[]`:
/// `uuid`, `numeric(12, 2)`, `timestamp(3) with time zone`, `int[]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SqlType(String);

impl SqlType {
    const MAX_BYTES: usize = 63;

    fn new(name: &str) -> Result<Self, DbError> {
        // It becomes a part of the statement: nothing of it may end the cast.
        if name.len() <= Self::MAX_BYTES && is_type(name) {
            Ok(Self(name.to_owned()))
        } else {
            Err(DbError::new(DbErrorKind::Invalid, format!("no type is called {name:?}")))
        }
    }
}

fn is_type(name: &str) -> bool {
    let mut name = name;
    while let Some(element) = name.strip_suffix("[]") {
        name = element;
    }
    let Some((before, rest)) = name.split_once('(') else { return is_words(name) };
    let Some((numbers, after)) = rest.split_once(')') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_words(before.trim_end_matches(' '))
        && numbers.split(',').all(|number| is_number(number.trim_matches(' ')))
        && (after.is_empty() || after.strip_prefix(' ').is_some_and(is_words))
}

fn is_words(text: &str) -> bool {
    text.split(' ').all(|word| {
        word.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The values of a row, in the order of the columns.
pub type Row = Vec<Value>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_a_type_and_nothing_else() {
        for good in [
            "uuid",
            "int8",
            "_mine",
            "double precision",
            "numeric(12, 2)",
            "numeric (12,2)",
            "timestamp(3) with time zone",
            "char(10) character set utf8mb4",
            "int[]",
            "varchar(9)[][]",
        ] {
            assert!(SqlType::new(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in [
            "",
            " ",
            "int) or (true",
            "int) or (1",
            "int), (select 1",
            "int)",
            "(1)",
            "int(",
            "int()",
            "int(1,)",
            "int(-1)",
            "int(a)",
            "int(1)(2)",
            "int(1))",
            "int(1)x",
            "int[1]",
            "int[",
            "[]",
            "int []",
            "int  x",
            "1a",
            "int, x",
            "int;",
            "int--",
            "int/**/",
            "int\nx",
            "int'",
            "int\"",
            "int?",
            "int$1",
            "a.b",
            "ünt",
            &long,
        ] {
            assert!(SqlType::new(bad).is_err(), "{bad}");
        }
    }
}
