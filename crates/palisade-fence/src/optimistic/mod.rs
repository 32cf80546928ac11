mod record;
mod update;
mod version;

pub use self::record::{Record, Written};
pub use self::update::{Changes, Conflict, Merge, OnConflict, UpdateError};

use std::sync::Arc;

use self::version::VersionKind;
use crate::columns::{Column, equal, selected};
use crate::{DbError, DbErrorKind, Dialect, Identifier, Transaction, Value};

/// A table of the caller's own with a version in every row: read, change, and write only if nobody else has since.
///
/// No lock is held between reading and writing, which may be in two transactions, hours apart. Whoever comes second is told, with
/// the row as it is now.
///
/// ```
/// use palisade_fence::{Transaction, Versioned, Written, at_once};
/// let mut database = rusqlite::Connection::open_in_memory()?;
/// database.execute_batch(
///     "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER NOT NULL);
///      INSERT INTO account VALUES (7, 1000, 1)",
/// )?;
/// let accounts = Versioned::table("account")?.key("id")?.version("version")?.column("balance")?;
/// let mut tx = database.transaction()?;
///
/// let mine = at_once(accounts.read(&mut tx, &[7.into()]))?.unwrap();
/// let theirs = mine.clone();
/// assert!(matches!(at_once(accounts.write(&mut tx, &mine, &[("balance", 500.into())]))?, Written::Done(_)));
/// match at_once(accounts.write(&mut tx, &theirs, &[("balance", 700.into())]))? {
///     Written::Conflict(now) => assert_eq!(now.get("balance").unwrap().as_i64(), Some(500)),
///     other => panic!("an update was lost: {other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Versioned {
    table: Identifier,
    keys: Vec<Identifier>,
    version: Option<(Identifier, VersionKind)>,
    columns: Vec<Column>,
}

impl Versioned {
    /// The rows of `table`. Its key and its version must be named, too.
    ///
    /// # Errors
    /// That is no name of a table.
    pub fn table(table: &str) -> Result<Self, DbError> {
        Ok(Self { table: Identifier::new(table)?, keys: Vec::new(), version: None, columns: Vec::new() })
    }

    /// A column of its primary key; all of several, in the order in which values will be given.
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn key(mut self, column: &str) -> Result<Self, DbError> {
        self.keys.push(Identifier::new(column)?);
        Ok(self)
    }

    /// The whole number that every write raises by one. Whoever else writes to the table must do so, too.
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn version(self, column: &str) -> Result<Self, DbError> {
        self.versioned(column, VersionKind::Number)
    }

    /// The time of the last change, which every write sets by the database's clock, and always later than it was.
    ///
    /// A column that is too coarse to tell two writes apart is found out: a write that would leave it as it was is an error. On
    /// MySQL, take `DATETIME(6)`, or have all sessions in one time zone.
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn timestamp(self, column: &str) -> Result<Self, DbError> {
        self.versioned(column, VersionKind::Time)
    }

    fn versioned(mut self, column: &str, kind: VersionKind) -> Result<Self, DbError> {
        self.version = Some((Identifier::new(column)?, kind));
        Ok(self)
    }

    /// A column to read.
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn column(self, column: &str) -> Result<Self, DbError> {
        self.with(column, false)
    }

    /// A column to read by a cast to text: a date, a decimal number, a UUID. It is written by [`Value::cast`].
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn column_as_text(self, column: &str) -> Result<Self, DbError> {
        self.with(column, true)
    }

    fn with(mut self, column: &str, as_text: bool) -> Result<Self, DbError> {
        self.columns.push(Column { name: Identifier::new(column)?, as_text });
        Ok(self)
    }

    /// Reads the row with this key, and its version.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn read<T: Transaction>(&self, tx: &mut T, key: &[Value]) -> Result<Option<Record>, DbError> {
        self.select(tx, key, "").await
    }

    /// Changes columns of a row, if nobody else has written to it since it was read.
    ///
    /// # Errors
    /// [`DbErrorKind::Invalid`] if a column of the key or the version is to be rows, or the key is that of several rows: roll
    /// back then.
    pub async fn write<T: Transaction>(
        &self,
        tx: &mut T,
        read: &Record,
        changes: &[(&str, Value)],
    ) -> Result<Written, DbError> {
        let (sql, values) = self.update_statement(tx.dialect(), read, changes)?;
        let rows = tx.execute(&sql, &values).await?;
        if rows > 1 {
            let message = format!("{rows} rows of {} have that key: roll back", self.table.as_str());
            return Err(DbError::new(DbErrorKind::Invalid, message));
        }
        if rows == 1 {
            let now = self.select(tx, &read.key, "").await?.ok_or_else(vanished)?;
            return if now.version == read.version { Err(self.too_coarse()) } else { Ok(Written::Done(now)) };
        }
        // MySQL would show what this transaction saw at first, unless it is asked to lock.
        let tail = if tx.dialect() == Dialect::MySql { " FOR UPDATE" } else { "" };
        match self.select(tx, &read.key, tail).await? {
            // Some drivers of MySQL count only rows that really changed.
            Some(now) if now.version == read.version => Err(self.too_coarse()),
            Some(now) => Ok(Written::Conflict(now)),
            None => Ok(Written::Gone),
        }
    }

    fn update_statement(
        &self,
        dialect: Dialect,
        read: &Record,
        changes: &[(&str, Value)],
    ) -> Result<(String, Vec<Value>), DbError> {
        let (version, kind) = self.version_column()?;
        let mut set = vec![format!("{} = {}", version.quoted(dialect), kind.next(version, dialect))];
        for (column, value) in changes {
            if self.is_fixed(column, version, dialect) {
                let message = format!("{column} is of the key, or the version: a write cannot change it");
                return Err(DbError::new(DbErrorKind::Invalid, message));
            }
            set.push(format!("{} = {}", Identifier::new(column)?.quoted(dialect), value.placeholder()));
        }
        let keys = self.keyed(&read.key)?;
        let sql = format!(
            "UPDATE {} SET {} WHERE {} AND {} = ?",
            self.table.quoted(dialect),
            set.join(", "),
            equal(&keys, dialect),
            kind.shown(version, dialect)
        );
        let mut values = Value::bound(changes.iter().map(|(_, value)| value).chain(&read.key));
        values.push(read.version.clone());
        Ok((sql, values))
    }

    /// Whether that is a column by which the row is found again.
    fn is_fixed(&self, column: &str, version: &Identifier, dialect: Dialect) -> bool {
        let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        let column = last(column);
        self.keys.iter().chain([version]).any(|fixed| match dialect {
            Dialect::Postgres => last(fixed.as_str()) == column,
            // Names of columns have no case there.
            Dialect::MySql | Dialect::Sqlite => last(fixed.as_str()).eq_ignore_ascii_case(&column),
        })
    }

    async fn select<T: Transaction>(
        &self,
        tx: &mut T,
        key: &[Value],
        tail: &str,
    ) -> Result<Option<Record>, DbError> {
        let dialect = tx.dialect();
        let (version, kind) = self.version_column()?;
        let keys = self.keyed(key)?;
        let sql = format!(
            "SELECT {}, {} FROM {} WHERE {}{tail}",
            kind.shown(version, dialect),
            selected(&self.columns, dialect),
            self.table.quoted(dialect),
            equal(&keys, dialect)
        );
        let rows = tx.query(&sql, &Value::bound(key)).await?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(None) };
        let version = row.remove(0);
        if version.is_null() {
            return Err(DbError::new(
                DbErrorKind::Invalid,
                "the version of a row is NULL: declare it NOT NULL",
            ));
        }
        let columns: Arc<[String]> =
            self.columns.iter().map(|column| column.name.as_str().to_owned()).collect();
        row.truncate(columns.len());
        Ok(Some(Record { key: key.to_vec(), version, columns, values: row }))
    }

    fn keyed(&self, key: &[Value]) -> Result<Vec<(Identifier, Value)>, DbError> {
        if key.len() != self.keys.len() || key.is_empty() {
            let message = format!(
                "the key of {} has {} columns, not {}",
                self.table.as_str(),
                self.keys.len(),
                key.len()
            );
            return Err(DbError::new(DbErrorKind::Invalid, message));
        }
        Ok(self.keys.iter().cloned().zip(key.iter().cloned()).collect())
    }

    fn version_column(&self) -> Result<(&Identifier, VersionKind), DbError> {
        let missing = || DbError::new(DbErrorKind::Invalid, "which column is the version? Name it");
        self.version.as_ref().map(|(column, kind)| (column, *kind)).ok_or_else(missing)
    }

    fn too_coarse(&self) -> DbError {
        let column = self.version.as_ref().map_or("", |(column, _)| column.as_str());
        let message =
            format!("{column} did not change by a write: it is too coarse to be a version; roll back");
        DbError::new(DbErrorKind::Invalid, message)
    }
}

fn vanished() -> DbError {
    DbError::new(DbErrorKind::Retry, "a row that was just written is not there")
}
