use crate::columns::{Column, equal, selected};
use crate::{DbError, DbErrorKind, Dialect, Identifier, Row, Transaction, Value};

/// Locks rows of the caller's own table until the caller's transaction ends: `SELECT … FOR UPDATE`.
///
/// The database's own lock, with no token: it protects what is changed in this transaction, and nothing else.
/// SQLite has none ([`DbErrorKind::Unsupported`]): begin its transactions with `BEGIN IMMEDIATE`, and they come one by one.
///
/// ```no_run
/// use palisade_fence::{RowLock, RowLocked, Transaction};
/// # async fn example(tx: &mut impl Transaction) -> Result<(), palisade_fence::DbError> {
/// let account = RowLock::on("accounts")?.key("id", 7)?.column("balance")?;
/// match account.try_lock(tx).await? {
///     RowLocked::Locked(row) => println!("the balance is {:?}", row[0].as_i64()),
///     RowLocked::Busy => println!("somebody else changes it"),
///     RowLocked::Absent => println!("there is no such account"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RowLock {
    table: Identifier,
    keys: Vec<(Identifier, Value)>,
    columns: Vec<Column>,
    order: Option<Identifier>,
}

/// What became of the lock on a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowLocked {
    /// It is ours; with the columns that were asked for, as they are now.
    Locked(Row),
    /// Another transaction has it.
    Busy,
    /// There is no such row.
    Absent,
}

impl RowLock {
    /// Locks rows of `table`.
    ///
    /// # Errors
    /// That is no name of a table.
    pub fn on(table: &str) -> Result<Self, DbError> {
        Ok(Self { table: Identifier::new(table)?, keys: Vec::new(), columns: Vec::new(), order: None })
    }

    /// Only those whose `column` is `value`; all of several.
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn key(mut self, column: &str, value: impl Into<Value>) -> Result<Self, DbError> {
        self.keys.push((Identifier::new(column)?, value.into()));
        Ok(self)
    }

    /// Reads this column, too.
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn column(self, column: &str) -> Result<Self, DbError> {
        self.with(column, false)
    }

    /// Reads this column, too, by a cast to text: a date, a decimal number, a UUID.
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn column_as_text(self, column: &str) -> Result<Self, DbError> {
        self.with(column, true)
    }

    /// Those with the least of this column first, for [`RowLock::take`].
    ///
    /// # Errors
    /// That is no name of a column.
    pub fn order_by(mut self, column: &str) -> Result<Self, DbError> {
        self.order = Some(Identifier::new(column)?);
        Ok(self)
    }

    fn with(mut self, column: &str, as_text: bool) -> Result<Self, DbError> {
        self.columns.push(Column { name: Identifier::new(column)?, as_text });
        Ok(self)
    }

    /// Locks the row, and waits for whoever has it; as long as the database lets one wait.
    ///
    /// # Errors
    /// [`DbErrorKind::LockTimeout`] after the database's own limit, [`DbErrorKind::Retry`] for a deadlock.
    pub async fn lock<T: Transaction>(&self, tx: &mut T) -> Result<RowLocked, DbError> {
        let rows = self.select(tx, " FOR UPDATE").await?;
        Ok(rows.into_iter().next().map_or(RowLocked::Absent, RowLocked::Locked))
    }

    /// Locks the row, or says at once that it is busy (`NOWAIT`). The transaction goes on in either case.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn try_lock<T: Transaction>(&self, tx: &mut T) -> Result<RowLocked, DbError> {
        // On PostgreSQL an error ends the transaction, unless it goes back to before it.
        let savepoint = tx.dialect() == Dialect::Postgres;
        if savepoint {
            tx.execute("SAVEPOINT palisade_row_lock", &[]).await?;
        }
        let locked = match self.select(tx, " FOR UPDATE NOWAIT").await {
            Ok(rows) => rows.into_iter().next().map_or(RowLocked::Absent, RowLocked::Locked),
            Err(error) if error.kind() == DbErrorKind::LockTimeout => {
                if savepoint {
                    tx.execute("ROLLBACK TO SAVEPOINT palisade_row_lock", &[]).await?;
                }
                RowLocked::Busy
            }
            Err(error) => return Err(error),
        };
        if savepoint {
            tx.execute("RELEASE SAVEPOINT palisade_row_lock", &[]).await?;
        }
        Ok(locked)
    }

    /// Locks up to `most` rows that nobody has, and passes over the others (`SKIP LOCKED`): workers that share a table of jobs
    /// each get jobs of their own.
    ///
    /// None may mean that there are none, or that others have all of them.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn take<T: Transaction>(&self, tx: &mut T, most: u32) -> Result<Vec<Row>, DbError> {
        let order = self.order.as_ref().map(|by| format!(" ORDER BY {}", by.quoted(tx.dialect())));
        let tail = format!("{} LIMIT {most} FOR UPDATE SKIP LOCKED", order.unwrap_or_default());
        self.select(tx, &tail).await
    }

    /// Locks the row if nobody has it (`SKIP LOCKED`), and tells a busy one from one that is not there by a second look.
    ///
    /// Cheaper than [`RowLock::try_lock`] on PostgreSQL; but it waits for whoever has locked the whole table.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn skip_locked<T: Transaction>(&self, tx: &mut T) -> Result<RowLocked, DbError> {
        if let Some(row) = self.take(tx, 1).await?.into_iter().next() {
            return Ok(RowLocked::Locked(row));
        }
        let there = !self.select(tx, " LIMIT 1").await?.is_empty();
        Ok(if there { RowLocked::Busy } else { RowLocked::Absent })
    }

    async fn select<T: Transaction>(&self, tx: &mut T, tail: &str) -> Result<Vec<Row>, DbError> {
        let dialect = tx.dialect();
        if dialect == Dialect::Sqlite {
            return Err(DbError::new(
                DbErrorKind::Unsupported,
                "SQLite locks no rows: begin the transaction with BEGIN IMMEDIATE",
            ));
        }
        if self.keys.is_empty() {
            return Err(DbError::new(
                DbErrorKind::Invalid,
                "a row lock needs a key: it would lock the whole table",
            ));
        }
        let (columns, table) = (selected(&self.columns, dialect), self.table.quoted(dialect));
        let sql = format!("SELECT {columns} FROM {table} WHERE {}{tail}", equal(&self.keys, dialect));
        tx.query(&sql, &Value::bound(self.keys.iter().map(|(_, value)| value))).await
    }
}
