use std::error::Error as StdError;
use std::fmt;

use super::{Record, Versioned, Written};
use crate::{Backoff, Database, DbError, Transaction, Value};

/// What to do when somebody else has written first. The caller chooses.
pub enum OnConflict<'a> {
    /// Give up, and say what is there.
    Abort,
    /// Read again and change that, after a pause, in a new transaction.
    Retry(Backoff),
    /// Have the two changes made into one, which is written over theirs; `None` gives up.
    Merge(Backoff, Merge<'a>),
}

/// Makes one change of two.
pub type Merge<'a> = &'a mut (dyn FnMut(Conflict<'_>) -> Option<Changes> + Send);

/// Columns and what they are to hold.
pub type Changes = Vec<(&'static str, Value)>;

/// Two changes of one row.
#[derive(Debug)]
#[non_exhaustive]
pub struct Conflict<'a> {
    /// The row as it was read.
    pub base: &'a Record,
    /// What was to be changed.
    pub mine: &'a Changes,
    /// The row as somebody else has made it.
    pub current: &'a Record,
}

impl fmt::Debug for OnConflict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abort => f.write_str("Abort"),
            Self::Retry(backoff) => f.debug_tuple("Retry").field(backoff).finish(),
            Self::Merge(backoff, _) => f.debug_tuple("Merge").field(backoff).finish_non_exhaustive(),
        }
    }
}

/// An update was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum UpdateError {
    /// Somebody else wrote first, and that was to be the end of it, or it was so at every try; with the row as it is now.
    Conflict(Box<Record>),
    /// There is no such row.
    Gone,
    /// The database refused.
    Db(DbError),
}

/// How one try ended without an update.
enum Failed {
    Conflict(Record),
    Final(UpdateError),
    Retry(DbError),
}

impl From<DbError> for Failed {
    fn from(error: DbError) -> Self {
        if error.is_retry() { Self::Retry(error) } else { Self::Final(UpdateError::Db(error)) }
    }
}

impl Versioned {
    /// Reads the row with this key, changes it, and writes it, each try in a transaction of its own. Returns it as it is then.
    ///
    /// `change` may be called more than once, and is to have no effect of its own.
    ///
    /// # Errors
    /// [`UpdateError::Conflict`] if `on_conflict` gives up.
    ///
    /// # Cancel safety
    /// The transaction is rolled back, unless its commit was under way.
    pub async fn update<D: Database>(
        &self,
        database: &mut D,
        key: &[Value],
        mut on_conflict: OnConflict<'_>,
        mut change: impl FnMut(&Record) -> Changes,
    ) -> Result<Record, UpdateError> {
        let mut tried = 0;
        loop {
            tried += 1;
            let failed = match self.attempt(database, key, &mut on_conflict, &mut change).await {
                Ok(record) => return Ok(record),
                Err(Failed::Final(error)) => return Err(error),
                Err(failed) => failed,
            };
            let again = match &on_conflict {
                OnConflict::Abort => false,
                OnConflict::Retry(backoff) | OnConflict::Merge(backoff, _) => backoff.wait(tried).await,
            };
            if !again {
                return Err(match failed {
                    Failed::Conflict(current) => UpdateError::Conflict(Box::new(current)),
                    Failed::Retry(error) => UpdateError::Db(error),
                    Failed::Final(error) => error,
                });
            }
        }
    }

    async fn attempt<D: Database>(
        &self,
        database: &mut D,
        key: &[Value],
        on_conflict: &mut OnConflict<'_>,
        change: &mut impl FnMut(&Record) -> Changes,
    ) -> Result<Record, Failed> {
        let mut tx = database.begin().await?;
        let base = self.read(&mut tx, key).await?.ok_or(Failed::Final(UpdateError::Gone))?;
        let mine = change(&base);
        let mut written = self.write(&mut tx, &base, &mine).await?;
        if let (Written::Conflict(current), OnConflict::Merge(_, merge)) = (&written, on_conflict) {
            let merged = merge(Conflict { base: &base, mine: &mine, current });
            let merged =
                merged.ok_or_else(|| Failed::Final(UpdateError::Conflict(Box::new(current.clone()))))?;
            let current = current.clone();
            written = self.write(&mut tx, &current, &merged).await?;
        }
        match written {
            Written::Done(record) => {
                tx.commit().await?;
                Ok(record)
            }
            Written::Conflict(current) => Err(Failed::Conflict(current)),
            Written::Gone => Err(Failed::Final(UpdateError::Gone)),
        }
    }
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(current) => {
                write!(f, "somebody else wrote first: it is at {:?} now", current.version())
            }
            Self::Gone => f.write_str("there is no such row"),
            Self::Db(error) => error.fmt(f),
        }
    }
}

impl StdError for UpdateError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Db(error) => Some(error),
            _ => None,
        }
    }
}
