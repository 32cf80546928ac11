use std::time::Duration;

use palisade_core::{InvalidName, Name};

use super::{Keep, Reserved, State, checked, other_amount, other_keep, some};
use crate::{DbError, DbErrorKind, Dialect, Transaction, Value};

/// A bounded counter: so many of something, reserved by requests, never more than there are.
///
/// Each step is one conditional change in the caller's own transaction, and a constraint of the table is the net below it. A
/// request has an id of the caller's choice, which makes every step idempotent: whoever got no answer asks again.
///
/// ```
/// use std::time::Duration;
/// use palisade_fence::{Counter, Keep, Reserved, State, at_once};
/// let mut database = rusqlite::Connection::open_in_memory()?;
/// let mut tx = database.transaction()?;
/// at_once(Counter::create(&mut tx))?;
/// let gifts = Counter::new("campaign")?;
/// at_once(gifts.set_capacity(&mut tx, 2))?;
///
/// let hold = Keep::For(Duration::from_secs(60));
/// assert_eq!(at_once(gifts.reserve(&mut tx, "anna", 1, hold))?, Reserved::Yes(State::Held));
/// assert_eq!(at_once(gifts.reserve(&mut tx, "anna", 1, hold))?, Reserved::Again(State::Held)); // the same gift
/// assert_eq!(at_once(gifts.reserve(&mut tx, "bert", 1, Keep::Always))?, Reserved::Yes(State::Confirmed));
/// assert_eq!(at_once(gifts.reserve(&mut tx, "carl", 1, hold))?, Reserved::Full { left: 0 });
/// assert_eq!(at_once(gifts.confirm(&mut tx, "anna"))?, Some(State::Confirmed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter(Name);

/// How a counter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stock {
    /// How many there are in all.
    pub capacity: u64,
    /// How many are held or given.
    pub taken: u64,
}

/// How a request is stored.
struct Stored {
    amount: i64,
    state: State,
    /// For how long it was to be kept, in milliseconds; 0 for good.
    kept_for: i64,
    /// Held, but for too long.
    is_over: bool,
}

impl Counter {
    /// How many holds one sweep ends at most: the counter is locked meanwhile.
    const SWEEP: u32 = 500;

    /// The counter called `name`.
    ///
    /// # Errors
    /// That is no name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
        Name::new(name).map(Self)
    }

    /// The statements that make the tables, for those who migrate themselves. What is there already is left alone.
    pub fn schema(dialect: Dialect) -> Vec<String> {
        let name = dialect.name_type();
        let (options, index) = match dialect {
            Dialect::MySql => (" ENGINE=InnoDB", ",\n    INDEX palisade_reservation_at (counter, state, at)"),
            Dialect::Postgres | Dialect::Sqlite => ("", ""),
        };
        let mut all = vec![
            format!(
                "CREATE TABLE IF NOT EXISTS palisade_counter (\n    name {name} NOT NULL PRIMARY KEY,\n    \
                 capacity BIGINT NOT NULL,\n    taken BIGINT NOT NULL,\n    \
                 CHECK (taken >= 0 AND taken <= capacity)\n){options}"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS palisade_reservation (\n    counter {name} NOT NULL,\n    \
                 request {name} NOT NULL,\n    amount BIGINT NOT NULL,\n    state SMALLINT NOT NULL,\n    \
                 at BIGINT NOT NULL,\n    kept_for BIGINT NOT NULL,\n    PRIMARY KEY (counter, request){index}\n){options}"
            ),
        ];
        if dialect != Dialect::MySql {
            let index = "CREATE INDEX IF NOT EXISTS palisade_reservation_at ON palisade_reservation (counter, state, at)";
            all.push(index.to_owned());
        }
        all
    }

    /// Makes the tables, unless they are there. On MySQL this commits the transaction: call it in one of its own.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn create<T: Transaction>(tx: &mut T) -> Result<(), DbError> {
        crate::schema::create(tx, &Self::schema(tx.dialect())).await
    }

    /// Says how many there are in all; makes the counter if it is new. Returns false if more are taken already, and changes
    /// nothing then.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn set_capacity<T: Transaction>(&self, tx: &mut T, capacity: u64) -> Result<bool, DbError> {
        let capacity = whole(capacity)?;
        let dialect = tx.dialect();
        let insert = format!(
            "{} (name, capacity, taken) VALUES (?, ?, 0){}",
            dialect.insert("palisade_counter"),
            dialect.or_nothing()
        );
        if tx.execute(&insert, &[self.name(dialect), capacity.into()]).await? > 0 {
            return Ok(true);
        }
        self.lock(tx).await?;
        let Some(stock) = self.stock(tx).await? else {
            return Err(DbError::new(DbErrorKind::Retry, "a counter was deleted while it was changed"));
        };
        if stock.taken > capacity.cast_unsigned() {
            return Ok(false);
        }
        let update = "UPDATE palisade_counter SET capacity = ? WHERE name = ?";
        tx.execute(update, &[capacity.into(), self.name(dialect)]).await?;
        Ok(true)
    }

    /// How it stands; `None` if it was never given a capacity. Holds that are over count until they are swept.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn stock<T: Transaction>(&self, tx: &mut T) -> Result<Option<Stock>, DbError> {
        let lock = if tx.dialect() == Dialect::MySql { " LOCK IN SHARE MODE" } else { "" };
        let sql = format!("SELECT capacity, taken FROM palisade_counter WHERE name = ?{lock}");
        let rows = tx.query(&sql, &[self.name(tx.dialect())]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Stock { capacity: column(row, 0)?.cast_unsigned(), taken: column(row, 1)?.cast_unsigned() }))
    }

    /// Takes `amount` for `request`, if so many are left.
    ///
    /// The counter's row is locked by the last statement only, so that those who wait for it wait for little more than the commit:
    /// call this last in the transaction, and roll back unless it [is new](Reserved::is_new). Holds that are over are ended when there
    /// is not enough left; where many end unconfirmed, [`expire`](Self::expire) now and then keeps that short.
    ///
    /// # Errors
    /// [`DbErrorKind::Invalid`] if the counter has no capacity yet, the amount is 0, or the request was made before for another
    /// amount, or to be kept for another time.
    pub async fn reserve<T: Transaction>(
        &self,
        tx: &mut T,
        request: &str,
        amount: u64,
        keep: Keep,
    ) -> Result<Reserved, DbError> {
        checked("a request", request)?;
        some(amount)?;
        let (dialect, amount) = (tx.dialect(), whole(amount)?);
        let key = [self.name(dialect), dialect.name(request)];
        let insert = format!(
            "{} (counter, request, amount, state, at, kept_for) VALUES (?, ?, ?, ?, {} + ?, ?){}",
            dialect.insert("palisade_reservation"),
            dialect.now_millis(),
            dialect.or_nothing()
        );
        let [name, id] = key.clone();
        let millis = keep.millis();
        let values = [name, id, amount.into(), keep.state().number().into(), millis.into(), millis.into()];
        if tx.execute(&insert, &values).await? == 0 {
            return self.repeated(tx, request, amount, keep).await;
        }
        let mut fits = self.count(tx, amount).await?;
        // All that is over, if need be: who is told that it is full rolls back, and the sweep with it.
        while !fits && self.sweep(tx, Some(request)).await? > 0 {
            fits = self.count(tx, amount).await?;
        }
        if fits {
            self.begin_hold(tx, key, keep).await?;
            return Ok(Reserved::Yes(keep.state()));
        }
        tx.execute("DELETE FROM palisade_reservation WHERE counter = ? AND request = ?", &key).await?;
        let stock = self.stock(tx).await?.ok_or_else(|| {
            DbError::new(DbErrorKind::Invalid, format!("the counter {:?} was given no capacity", self.0))
        })?;
        Ok(Reserved::Full { left: stock.capacity.saturating_sub(stock.taken) })
    }

    /// Has a hold begin now: waiting for the counter may have taken longer than it is to last.
    async fn begin_hold<T: Transaction>(
        &self,
        tx: &mut T,
        key: [Value; 2],
        keep: Keep,
    ) -> Result<(), DbError> {
        if keep == Keep::Always {
            return Ok(());
        }
        let sql = format!(
            "UPDATE palisade_reservation SET at = {} + ? WHERE counter = ? AND request = ?",
            tx.dialect().now_millis()
        );
        let [name, id] = key;
        tx.execute(&sql, &[keep.millis().into(), name, id]).await?;
        Ok(())
    }

    async fn repeated<T: Transaction>(
        &self,
        tx: &mut T,
        request: &str,
        amount: i64,
        keep: Keep,
    ) -> Result<Reserved, DbError> {
        let gone = || DbError::new(DbErrorKind::Retry, "a request was deleted while it was repeated");
        let stored = self.stored(tx, request).await?.ok_or_else(gone)?;
        if stored.amount != amount {
            return Err(other_amount(request, stored.amount, amount));
        }
        if stored.kept_for != keep.millis() {
            return Err(other_keep(request, stored.kept_for, keep));
        }
        let state = if stored.is_over {
            self.give_back(tx, request, &stored, State::Expired).await?
        } else {
            stored.state
        };
        Ok(Reserved::Again(state))
    }

    /// Makes a hold last for good. Returns how the request stands then: confirmed, or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn confirm<T: Transaction>(&self, tx: &mut T, request: &str) -> Result<Option<State>, DbError> {
        let dialect = tx.dialect();
        let now = dialect.now_millis();
        let update = format!(
            "UPDATE palisade_reservation SET state = 1, at = {now} \
             WHERE counter = ? AND request = ? AND state = 0 AND at > {now}"
        );
        if tx.execute(&update, &[self.name(dialect), dialect.name(request)]).await? > 0 {
            return Ok(Some(State::Confirmed));
        }
        match self.stored(tx, request).await? {
            Some(stored) if stored.is_over => {
                Ok(Some(self.give_back(tx, request, &stored, State::Expired).await?))
            }
            Some(stored) => Ok(Some(stored.state)),
            None => Ok(None),
        }
    }

    /// Gives back what is held. Returns how the request stands then: cancelled, or confirmed or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn cancel<T: Transaction>(&self, tx: &mut T, request: &str) -> Result<Option<State>, DbError> {
        // The counter first, as whoever sweeps does: two who take locks in two orders wait for each other.
        self.lock(tx).await?;
        match self.stored(tx, request).await? {
            Some(stored) if stored.state == State::Held => {
                let end = if stored.is_over { State::Expired } else { State::Cancelled };
                Ok(Some(self.give_back(tx, request, &stored, end).await?))
            }
            Some(stored) => Ok(Some(stored.state)),
            None => Ok(None),
        }
    }

    /// Ends holds that are over, up to 500 of them, and returns how many of what is counted came back.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn expire<T: Transaction>(&self, tx: &mut T) -> Result<u64, DbError> {
        self.sweep(tx, None).await
    }

    /// Ends holds that are over, except that of a request which is not counted yet: there is nothing of it to give back.
    async fn sweep<T: Transaction>(&self, tx: &mut T, uncounted: Option<&str>) -> Result<u64, DbError> {
        self.lock(tx).await?;
        let dialect = tx.dialect();
        // The counter is locked: this statement begins only now.
        let (now, name) = (dialect.statement_millis(), self.name(dialect));
        let over = format!(
            "SELECT request, amount FROM palisade_reservation \
             WHERE counter = ? AND state = 0 AND at <= {now} AND request <> ? LIMIT {}",
            Self::SWEEP
        );
        // One by one, by their key: a range would lock what lies beside it, too.
        let end = format!(
            "UPDATE palisade_reservation SET state = 3, at = {now} \
             WHERE counter = ? AND request = ? AND state = 0 AND at <= {now}"
        );
        let mut back = 0;
        // No request is called nothing.
        let uncounted = dialect.name(uncounted.unwrap_or_default());
        for row in tx.query(&over, &[name.clone(), uncounted]).await? {
            let request = row.first().and_then(Value::as_str).unwrap_or_default();
            if tx.execute(&end, &[name.clone(), dialect.name(request)]).await? > 0 {
                back += column(&row, 1)?;
            }
        }
        if back > 0 {
            self.count(tx, -back).await?;
        }
        Ok(back.cast_unsigned())
    }

    /// Deletes requests that were cancelled, or expired, for longer than `age`: asking again with their ids is a new request then.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn forget<T: Transaction>(&self, tx: &mut T, age: Duration) -> Result<u64, DbError> {
        let dialect = tx.dialect();
        let sql = format!(
            "DELETE FROM palisade_reservation WHERE counter = ? AND state IN (2, 3) AND at <= {} - ?",
            dialect.statement_millis()
        );
        tx.execute(&sql, &[self.name(dialect), Keep::For(age).millis().into()]).await
    }

    /// Adds to what is taken, if that leaves it within the bounds.
    async fn count<T: Transaction>(&self, tx: &mut T, amount: i64) -> Result<bool, DbError> {
        let sql = "UPDATE palisade_counter SET taken = taken + ? WHERE name = ? AND taken + ? <= capacity";
        let name = self.name(tx.dialect());
        Ok(tx.execute(sql, &[amount.into(), name, amount.into()]).await? > 0)
    }

    async fn give_back<T: Transaction>(
        &self,
        tx: &mut T,
        request: &str,
        stored: &Stored,
        end: State,
    ) -> Result<State, DbError> {
        let dialect = tx.dialect();
        let sql = format!(
            "UPDATE palisade_reservation SET state = ?, at = {} WHERE counter = ? AND request = ? AND state = 0",
            dialect.now_millis()
        );
        if tx.execute(&sql, &[end.number().into(), self.name(dialect), dialect.name(request)]).await? > 0 {
            self.count(tx, -stored.amount).await?;
        }
        Ok(end)
    }

    /// Locks and reads a request.
    async fn stored<T: Transaction>(&self, tx: &mut T, request: &str) -> Result<Option<Stored>, DbError> {
        let dialect = tx.dialect();
        let sql = format!(
            "SELECT amount, state, kept_for, CASE WHEN state = 0 AND at <= {} THEN 1 ELSE 0 END FROM palisade_reservation \
             WHERE counter = ? AND request = ?{}",
            dialect.now_millis(),
            dialect.for_update()
        );
        let rows = tx.query(&sql, &[self.name(dialect), dialect.name(request)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let state = State::from_number(row.get(1).and_then(Value::as_i64))?;
        let (amount, kept_for) = (column(row, 0)?, column(row, 2)?);
        Ok(Some(Stored { amount, state, kept_for, is_over: column(row, 3)? == 1 }))
    }

    /// Locks the counter's row.
    async fn lock<T: Transaction>(&self, tx: &mut T) -> Result<(), DbError> {
        let name = [self.name(tx.dialect())];
        match tx.dialect() {
            Dialect::Sqlite => {
                tx.execute("UPDATE palisade_counter SET taken = taken WHERE name = ?", &name).await?;
            }
            Dialect::Postgres | Dialect::MySql => {
                tx.query("SELECT taken FROM palisade_counter WHERE name = ? FOR UPDATE", &name).await?;
            }
        }
        Ok(())
    }

    fn name(&self, dialect: Dialect) -> Value {
        dialect.name(self.0.as_str())
    }
}

fn whole(amount: u64) -> Result<i64, DbError> {
    let too_much =
        || DbError::new(DbErrorKind::Invalid, format!("{amount} is more than a counter can count"));
    // Half of what fits, so that sums do, too.
    i64::try_from(amount).ok().filter(|amount| *amount <= i64::MAX / 2).ok_or_else(too_much)
}

fn column(row: &[Value], at: usize) -> Result<i64, DbError> {
    let number = row.get(at).and_then(Value::as_i64);
    number.ok_or_else(|| DbError::new(DbErrorKind::Corrupt, "a number of a counter cannot be read"))
}
