use std::error::Error as StdError;
use std::fmt;

use palisade_core::{Fence as Marks, FenceRefusal, FencingToken, InvalidName, Name, Source, Token};

use crate::cells;
use crate::{DbError, DbErrorKind, Dialect, Transaction, Value};

/// Lets only the latest holder of a resource write, in the caller's own transaction.
///
/// The table `palisade_fence` has a row per resource, which remembers the greatest token that has been here.
/// [`Fence::admit`] locks that row, compares, and raises it; it commits with the caller's writes, or not at all. So a holder that
/// was stopped past its TTL cannot write afterwards, however late it wakes: the next one has been here. Which engine gave the lock
/// does not matter; that a fence follows one engine's tokens at a time does.
///
/// Call it first in the transaction: it is also what makes two writers wait for each other. On MySQL's default isolation it matters
/// even more: a transaction that has read before goes on to see what was there then, whoever has written since.
///
/// ```
/// # use palisade_core::{FencingToken, Source, Token, TokenKind};
/// # let of = |number| FencingToken { token: Token::new(number).unwrap(), kind: TokenKind::Exclusive, slot: None, source: Source::new("etcd-a1") };
/// # let (old, new) = (of(33), of(34));
/// use palisade_fence::{Fence, FenceError, at_once};
/// let mut database = rusqlite::Connection::open_in_memory()?;
/// let mut tx = database.transaction()?;
/// at_once(Fence::create(&mut tx))?;
///
/// let fence = Fence::new("card:7")?;
/// at_once(fence.admit(&mut tx, &new))?;                     // with a guard: fence.admit(&mut tx, &guard)
/// match at_once(fence.admit(&mut tx, &old)) {
///     Err(FenceError::Stale { yours, current }) => assert!(yours < current),
///     other => panic!("a zombie was let in: {other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    namespace: String,
    resource: Name,
    strict: bool,
}

impl Fence {
    /// The fence of `resource`.
    ///
    /// # Errors
    /// That is no name.
    pub fn new(resource: impl AsRef<str>) -> Result<Self, InvalidName> {
        Ok(Self::of(&Name::new(resource)?))
    }

    /// The fence of a resource whose name was checked before, such as a guard's.
    pub fn of(resource: &Name) -> Self {
        Self { namespace: String::new(), resource: resource.clone(), strict: false }
    }

    /// The same fence in a namespace, as the engine's: one tenant's `card:7` is not another's.
    ///
    /// # Errors
    /// That is no name.
    pub fn in_namespace(mut self, namespace: impl AsRef<str>) -> Result<Self, InvalidName> {
        Name::new(namespace)?.as_str().clone_into(&mut self.namespace);
        Ok(self)
    }

    /// The same fence, but strict: one admission per token. Who is to write twice takes the lock twice.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// The statements that make the table, for those who migrate themselves. What is there already is left alone.
    pub fn schema(dialect: Dialect) -> Vec<String> {
        let name = dialect.name_type();
        let (cells, options) = match dialect {
            Dialect::MySql => ("LONGTEXT", " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"),
            Dialect::Postgres | Dialect::Sqlite => ("TEXT", ""),
        };
        vec![format!(
            "CREATE TABLE IF NOT EXISTS palisade_fence (\n    namespace {name} NOT NULL,\n    resource {name} NOT NULL,\n    \
             cells {cells} NOT NULL,\n    PRIMARY KEY (namespace, resource)\n){options}"
        )]
    }

    /// Makes the table, unless it is there. On MySQL this commits the transaction: call it in one of its own.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn create<T: Transaction>(tx: &mut T) -> Result<(), DbError> {
        crate::schema::create(tx, &Self::schema(tx.dialect())).await
    }

    /// Lets `token` write in this transaction, or says why not; and keeps older ones out from now on.
    ///
    /// # Errors
    /// [`FenceError::Stale`], [`FenceError::Spent`] and [`FenceError::OtherSource`] are refusals: roll back.
    /// [`FenceError::Db`] that [is a retry](DbError::is_retry): do the whole transaction again.
    ///
    /// # Cancel safety
    /// As of any statement: roll back.
    pub async fn admit<T: Transaction>(
        &self,
        tx: &mut T,
        token: impl Into<FencingToken>,
    ) -> Result<(), FenceError> {
        let token = token.into();
        let (mut marks, before) = self.lock(tx).await?;
        marks.check(&token, self.strict).map_err(|refusal| FenceError::refused(&token, refusal))?;
        marks.record_write(&token);
        self.store(tx, &marks, &before).await
    }

    /// Lets `token` read, and keeps older ones from writing from now on: a late write of theirs would spoil what was read.
    ///
    /// # Errors
    /// As [`Fence::admit`]; never [`FenceError::Spent`].
    pub async fn open<T: Transaction>(
        &self,
        tx: &mut T,
        token: impl Into<FencingToken>,
    ) -> Result<(), FenceError> {
        let token = token.into();
        let (mut marks, before) = self.lock(tx).await?;
        marks.check(&token, false).map_err(|refusal| FenceError::refused(&token, refusal))?;
        marks.raise(&token);
        self.store(tx, &marks, &before).await
    }

    /// Follows the source of `token` from now on, and forgets all others. For the hand of an operator, after a move from one
    /// engine to another; whoever still holds a token of the old engine must have ended before.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn rebase<T: Transaction>(
        &self,
        tx: &mut T,
        token: impl Into<FencingToken>,
    ) -> Result<(), DbError> {
        let (mut marks, before) = self.lock(tx).await?;
        marks.rebase(&token.into());
        self.write(tx, &marks, &before).await
    }

    /// The greatest token that has been here for the whole resource, or for one slot of it. Locks nothing.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn mark<T: Transaction>(
        &self,
        tx: &mut T,
        slot: Option<u32>,
    ) -> Result<Option<Token>, DbError> {
        let sql = "SELECT cells FROM palisade_fence WHERE namespace = ? AND resource = ?";
        let rows = tx.query(sql, &self.key(tx.dialect())).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(cells::decode(text(row)?)?.mark(slot))
    }

    /// Locks the row, which is made if it is not there, and reads it.
    async fn lock<T: Transaction>(&self, tx: &mut T) -> Result<(Marks, String), DbError> {
        let key = self.key(tx.dialect());
        let select = format!(
            "SELECT cells FROM palisade_fence WHERE namespace = ? AND resource = ?{}",
            tx.dialect().for_update()
        );
        let rows = match tx.dialect() {
            Dialect::Postgres => {
                let mut rows = tx.query(&select, &key).await?;
                if rows.is_empty() {
                    let insert = "INSERT INTO palisade_fence (namespace, resource, cells) VALUES (?, ?, '') \
                                  ON CONFLICT DO NOTHING";
                    tx.execute(insert, &key).await?;
                    rows = tx.query(&select, &key).await?;
                }
                rows
            }
            // Two that look for a row that is not there both lock the gap, and then keep each other from filling it.
            Dialect::MySql => {
                let insert = "INSERT INTO palisade_fence (namespace, resource, cells) VALUES (?, ?, '') \
                              ON DUPLICATE KEY UPDATE cells = cells";
                tx.execute(insert, &key).await?;
                tx.query(&select, &key).await?
            }
            // The write comes first: it takes the write lock, and what is read then is the latest.
            Dialect::Sqlite => {
                let insert = "INSERT INTO palisade_fence (namespace, resource, cells) VALUES (?, ?, '') \
                              ON CONFLICT DO UPDATE SET cells = cells RETURNING cells";
                tx.query(insert, &key).await?
            }
        };
        let row = rows.first().ok_or_else(|| {
            DbError::new(DbErrorKind::Retry, "the row of a fence was deleted while it was being locked")
        })?;
        let before = text(row)?;
        Ok((cells::decode(before)?, before.to_owned()))
    }

    async fn store<T: Transaction>(&self, tx: &mut T, marks: &Marks, before: &str) -> Result<(), FenceError> {
        Ok(self.write(tx, marks, before).await?)
    }

    async fn write<T: Transaction>(&self, tx: &mut T, marks: &Marks, before: &str) -> Result<(), DbError> {
        let cells = cells::encode(marks);
        // On PostgreSQL a row that was only locked looks untouched to a rival of a stricter isolation, which would go on with what
        // was there before this transaction. On MySQL, who comes next reads only then; SQLite watches all that is written.
        if cells == before && tx.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let [namespace, resource] = self.key(tx.dialect());
        let sql = "UPDATE palisade_fence SET cells = ? WHERE namespace = ? AND resource = ?";
        tx.execute(sql, &[cells.into(), namespace, resource]).await?;
        Ok(())
    }

    fn key(&self, dialect: Dialect) -> [Value; 2] {
        [dialect.name(&self.namespace), dialect.name(self.resource.as_str())]
    }
}

fn text(row: &[Value]) -> Result<&str, DbError> {
    let text = row.first().and_then(Value::as_str);
    text.ok_or_else(|| DbError::new(DbErrorKind::Corrupt, "palisade_fence.cells is no text"))
}

/// A token was not let in.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// A later holder has been here: the lock was lost, and with it the right to write.
    Stale {
        /// The token that was turned away.
        yours: Token,
        /// The token that counts now.
        current: Token,
    },
    /// Strict mode: this token, or a later one, has written already.
    Spent {
        /// The token that was turned away.
        yours: Token,
        /// The token that wrote.
        current: Token,
    },
    /// The fence follows the tokens of another engine, and the two do not compare; see [`Fence::rebase`].
    OtherSource {
        /// Who counted the token that was turned away.
        yours: Source,
        /// Whose tokens the fence follows.
        current: Source,
    },
    /// The database could not decide.
    Db(DbError),
}

impl FenceError {
    pub(crate) fn refused(token: &FencingToken, refusal: FenceRefusal) -> Self {
        let yours = token.token;
        match refusal {
            FenceRefusal::Stale { current } => Self::Stale { yours, current },
            FenceRefusal::Spent { current } => Self::Spent { yours, current },
            FenceRefusal::OtherSource { current } => {
                Self::OtherSource { yours: token.source.clone(), current }
            }
            other => Self::Db(DbError::new(DbErrorKind::Other, format!("refused: {other:?}"))),
        }
    }

    /// Whether the whole transaction should be done again.
    pub fn is_retry(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_retry())
    }
}

impl From<DbError> for FenceError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { yours, current } => {
                write!(f, "token {yours} is stale, {current} counts now: the lock was lost")
            }
            Self::Spent { yours, current } => {
                write!(f, "token {yours} is spent: {current} has written already")
            }
            Self::OtherSource { yours, current } => write!(
                f,
                "the token is of {yours}, the fence follows {current}: they do not compare until it is rebased by hand"
            ),
            Self::Db(error) => error.fmt(f),
        }
    }
}

impl StdError for FenceError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Db(error) => Some(error),
            _ => None,
        }
    }
}
