use std::time::Duration;

use palisade_core::{InvalidName, Name};

use super::{Keep, Reserved, State, checked, other_keep};
use crate::{DbError, DbErrorKind, Dialect, Transaction, Value};

/// Things that are each given once: the seats of a flight, rooms of a night, names of users.
///
/// That a seat is given once is a unique constraint of the table: whatever else goes wrong, the database refuses a second one.
/// A request has an id of the caller's choice, which makes every step idempotent.
///
/// ```
/// use palisade_fence::{Keep, Reserved, Seats, State, at_once};
/// let mut database = rusqlite::Connection::open_in_memory()?;
/// let mut tx = database.transaction()?;
/// at_once(Seats::create(&mut tx))?;
/// let flight = Seats::new("LH 7")?;
/// assert_eq!(at_once(flight.book(&mut tx, "A1", "anna", Keep::Always))?, Reserved::Yes(State::Confirmed));
/// assert_eq!(at_once(flight.book(&mut tx, "A1", "bert", Keep::Always))?, Reserved::Full { left: 0 });
/// assert_eq!(at_once(flight.who(&mut tx, "A1"))?, Some("anna".to_owned()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seats(Name);

impl Seats {
    /// Holds that are over are ended by whoever wants the seat; another may be as quick.
    const TRIES: usize = 3;

    /// How many requests are forgotten at once.
    const SWEEP: u32 = 500;

    /// The seats of `event`.
    ///
    /// # Errors
    /// That is no name.
    pub fn new(event: impl AsRef<str>) -> Result<Self, InvalidName> {
        Name::new(event).map(Self)
    }

    /// The statements that make the table, for those who migrate themselves. What is there already is left alone.
    ///
    /// `live` is 1 for who has the seat and NULL for who had it: a unique constraint takes no two ones, and any number of NULLs.
    pub fn schema(dialect: Dialect) -> Vec<String> {
        let name = dialect.name_type();
        let options = if dialect == Dialect::MySql { " ENGINE=InnoDB" } else { "" };
        vec![format!(
            "CREATE TABLE IF NOT EXISTS palisade_booking (\n    event {name} NOT NULL,\n    seat {name} NOT NULL,\n    \
             request {name} NOT NULL,\n    live SMALLINT,\n    state SMALLINT NOT NULL,\n    at BIGINT NOT NULL,\n    \
             kept_for BIGINT NOT NULL,\n    PRIMARY KEY (event, seat, request),\n    UNIQUE (event, seat, live),\n    \
             CHECK (live = 1)\n){options}"
        )]
    }

    /// Makes the table, unless it is there. On MySQL this commits the transaction: call it in one of its own.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn create<T: Transaction>(tx: &mut T) -> Result<(), DbError> {
        crate::schema::create(tx, &Self::schema(tx.dialect())).await
    }

    /// Takes `seat` for `request`, if nobody has it.
    ///
    /// # Errors
    /// [`DbErrorKind::Invalid`] if the request was made before, to be kept for another time.
    pub async fn book<T: Transaction>(
        &self,
        tx: &mut T,
        seat: &str,
        request: &str,
        keep: Keep,
    ) -> Result<Reserved, DbError> {
        checked("a seat", seat)?;
        checked("a request", request)?;
        let dialect = tx.dialect();
        let insert = format!(
            "{} (event, seat, request, live, state, at, kept_for) VALUES (?, ?, ?, 1, ?, {} + ?, ?){}",
            dialect.insert("palisade_booking"),
            dialect.now_millis(),
            dialect.or_nothing()
        );
        let [event, place, id] = self.key(dialect, seat, request);
        let millis = keep.millis();
        let values = [event, place, id, keep.state().number().into(), millis.into(), millis.into()];
        for _ in 0..Self::TRIES {
            if tx.execute(&insert, &values).await? > 0 {
                return Ok(Reserved::Yes(keep.state()));
            }
            if let Some((state, kept_for)) = self.stored(tx, seat, request).await? {
                let is_same = kept_for == millis;
                return if is_same {
                    Ok(Reserved::Again(state))
                } else {
                    Err(other_keep(request, kept_for, keep))
                };
            }
            if self.expire(tx, seat).await? == 0 && self.who(tx, seat).await?.is_some() {
                return Ok(Reserved::Full { left: 0 });
            }
        }
        Err(DbError::new(DbErrorKind::Retry, "the seat changed hands at every look"))
    }

    /// Makes a hold last for good. Returns how the request stands then: confirmed, or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn confirm<T: Transaction>(
        &self,
        tx: &mut T,
        seat: &str,
        request: &str,
    ) -> Result<Option<State>, DbError> {
        let now = tx.dialect().now_millis();
        let sql = format!("SET state = 1, at = {now} WHERE {{}} AND state = 0 AND at > {now}");
        self.change(tx, &sql, seat, request).await?;
        self.settled(tx, seat, request).await
    }

    /// Gives back what is held. Returns how the request stands then: cancelled, or confirmed or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn cancel<T: Transaction>(
        &self,
        tx: &mut T,
        seat: &str,
        request: &str,
    ) -> Result<Option<State>, DbError> {
        let now = tx.dialect().now_millis();
        let sql = format!("SET state = 2, live = NULL, at = {now} WHERE {{}} AND state = 0 AND at > {now}");
        self.change(tx, &sql, seat, request).await?;
        self.settled(tx, seat, request).await
    }

    /// Deletes requests, up to 500 of them, that were cancelled, or expired, for longer than `age`: asking again with their ids is
    /// a new request then.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn forget<T: Transaction>(&self, tx: &mut T, age: Duration) -> Result<u64, DbError> {
        let dialect = tx.dialect();
        let event = dialect.name(self.0.as_str());
        let old = format!(
            "SELECT seat, request FROM palisade_booking WHERE event = ? AND live IS NULL AND at <= {} - ? LIMIT {}",
            dialect.statement_millis(),
            Self::SWEEP
        );
        // One by one, by their key: a range would lock what lies beside it, too.
        let delete =
            "DELETE FROM palisade_booking WHERE event = ? AND seat = ? AND request = ? AND live IS NULL";
        let mut forgotten = 0;
        for row in tx.query(&old, &[event, Keep::For(age).millis().into()]).await? {
            let part = |at: usize| row.get(at).and_then(Value::as_str).unwrap_or_default();
            forgotten += tx.execute(delete, &self.key(dialect, part(0), part(1))).await?;
        }
        Ok(forgotten)
    }

    /// The request that has the seat, also if its hold is over and nobody else has come yet.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn who<T: Transaction>(&self, tx: &mut T, seat: &str) -> Result<Option<String>, DbError> {
        let dialect = tx.dialect();
        let lock = if dialect == Dialect::MySql { " LOCK IN SHARE MODE" } else { "" };
        let sql =
            format!("SELECT request FROM palisade_booking WHERE event = ? AND seat = ? AND live = 1{lock}");
        let rows = tx.query(&sql, &[dialect.name(self.0.as_str()), dialect.name(seat)]).await?;
        Ok(rows.first().and_then(|row| row.first()).and_then(Value::as_str).map(str::to_owned))
    }

    async fn change<T: Transaction>(
        &self,
        tx: &mut T,
        to: &str,
        seat: &str,
        request: &str,
    ) -> Result<u64, DbError> {
        let to = to.replace("{}", "event = ? AND seat = ? AND request = ?");
        tx.execute(&format!("UPDATE palisade_booking {to}"), &self.key(tx.dialect(), seat, request)).await
    }

    /// Ends the hold of whoever has the seat, if it is over.
    async fn expire<T: Transaction>(&self, tx: &mut T, seat: &str) -> Result<u64, DbError> {
        let dialect = tx.dialect();
        let now = dialect.now_millis();
        let sql = format!(
            "UPDATE palisade_booking SET state = 3, live = NULL, at = {now} \
             WHERE event = ? AND seat = ? AND live = 1 AND state = 0 AND at <= {now}"
        );
        tx.execute(&sql, &[dialect.name(self.0.as_str()), dialect.name(seat)]).await
    }

    /// How a request stands; a hold that is over is ended.
    async fn settled<T: Transaction>(
        &self,
        tx: &mut T,
        seat: &str,
        request: &str,
    ) -> Result<Option<State>, DbError> {
        Ok(self.stored(tx, seat, request).await?.map(|(state, _)| state))
    }

    /// How a request stands, and for how long it was to be kept.
    async fn stored<T: Transaction>(
        &self,
        tx: &mut T,
        seat: &str,
        request: &str,
    ) -> Result<Option<(State, i64)>, DbError> {
        let now = tx.dialect().now_millis();
        let over = format!("SET state = 3, live = NULL, at = {now} WHERE {{}} AND state = 0 AND at <= {now}");
        self.change(tx, &over, seat, request).await?;
        let dialect = tx.dialect();
        let lock = if dialect == Dialect::MySql { " LOCK IN SHARE MODE" } else { "" };
        let sql = format!(
            "SELECT state, kept_for FROM palisade_booking WHERE event = ? AND seat = ? AND request = ?{lock}"
        );
        let rows = tx.query(&sql, &self.key(dialect, seat, request)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let state = State::from_number(row.first().and_then(Value::as_i64))?;
        Ok(Some((state, row.get(1).and_then(Value::as_i64).unwrap_or_default())))
    }

    fn key(&self, dialect: Dialect, seat: &str, request: &str) -> [Value; 3] {
        [dialect.name(self.0.as_str()), dialect.name(seat), dialect.name(request)]
    }
}

impl From<InvalidName> for DbError {
    fn from(problem: InvalidName) -> Self {
        Self::new(DbErrorKind::Invalid, problem.to_string())
    }
}
