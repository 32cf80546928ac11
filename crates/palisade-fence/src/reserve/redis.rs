use std::time::Duration;

use palisade_core::{InvalidName, Name};
use redis::aio::ConnectionLike;
use redis::{AsyncCommands, RedisError, Script};

use super::{Keep, Reserved, State, Stock, checked, other_amount, other_keep, some};
use crate::{DbError, DbErrorKind};

/// Beyond it Lua's numbers are not exact.
const MOST: u64 = 1 << 52;

/// What scripts answer besides a state.
const FULL: i64 = -1;
const NONE: i64 = -2;
const UNSET: i64 = -3;
const OTHER_AMOUNT: i64 = -4;
const OTHER_KEEP: i64 = -5;

/// That a request was let in before.
const AGAIN: i64 = 1;

/// A bounded counter on Redis: as [`Counter`](crate::Counter), each step one script.
///
/// It is as durable as the server: what a crash or a failover of Redis forgets may be given again, and so may what it evicts: have
/// `maxmemory-policy noeviction`. Its keys share a slot of a Cluster. If no answer came, ask again with the same request id.
///
/// ```no_run
/// use palisade_fence::{Keep, RedisCounter};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut redis = redis::Client::open("redis://127.0.0.1")?.get_multiplexed_async_connection().await?;
/// let gifts = RedisCounter::new("campaign")?;
/// gifts.set_capacity(&mut redis, 10_000).await?;
/// let given = gifts.reserve(&mut redis, "anna", 1, Keep::Always).await?.is_given();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedisCounter {
    keys: [String; 4],
    script: Script,
}

impl RedisCounter {
    /// The counter called `name`.
    ///
    /// # Errors
    /// That is no name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
        let tag = tag(&Name::new(name)?);
        let keys =
            ["stock", "requests", "holds", "ended"].map(|what| format!("palisade:counter:{{{tag}}}:{what}"));
        Ok(Self { keys, script: Script::new(include_str!("scripts/counter.lua")) })
    }

    /// Says how many there are in all; makes the counter if it is new. Returns false if more are taken already, and changes
    /// nothing then.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn set_capacity(
        &self,
        redis: &mut impl ConnectionLike,
        capacity: u64,
    ) -> Result<bool, DbError> {
        let capacity = within(capacity)?.to_string();
        Ok(self.ask(redis, "capacity", &[&capacity]).await?.0 == 1)
    }

    /// How it stands; `None` if it was never given a capacity. Holds that are over count until they are swept.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn stock(&self, redis: &mut impl ConnectionLike) -> Result<Option<Stock>, DbError> {
        let (capacity, taken) = self.ask(redis, "stock", &[""]).await?;
        Ok((capacity != NONE)
            .then(|| Stock { capacity: capacity.cast_unsigned(), taken: taken.cast_unsigned() }))
    }

    /// Takes `amount` for `request`, if so many are left. Holds that are over are ended when there is not enough left.
    ///
    /// # Errors
    /// [`DbErrorKind::Invalid`] if the counter has no capacity yet, the amount is 0, or the request was made before for another
    /// amount, or to be kept for another time.
    pub async fn reserve(
        &self,
        redis: &mut impl ConnectionLike,
        request: &str,
        amount: u64,
        keep: Keep,
    ) -> Result<Reserved, DbError> {
        checked("a request", request)?;
        some(amount)?;
        let args =
            [within(amount)?.to_string(), keep.state().number().to_string(), keep.millis().to_string()];
        let (said, more) = self.ask(redis, "reserve", &[request, &args[0], &args[1], &args[2]]).await?;
        match said {
            FULL => Ok(Reserved::Full { left: more.cast_unsigned() }),
            UNSET => Err(DbError::new(DbErrorKind::Invalid, "the counter was given no capacity")),
            OTHER_AMOUNT => Err(other_amount(request, more, amount)),
            OTHER_KEEP => Err(other_keep(request, more, keep)),
            state if more == AGAIN => State::from_number(Some(state)).map(Reserved::Again),
            state => State::from_number(Some(state)).map(Reserved::Yes),
        }
    }

    /// Makes a hold last for good. Returns how the request stands then: confirmed, or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn confirm(
        &self,
        redis: &mut impl ConnectionLike,
        request: &str,
    ) -> Result<Option<State>, DbError> {
        stands(self.ask(redis, "confirm", &[request]).await?.0)
    }

    /// Gives back what is held. Returns how the request stands then: cancelled, or confirmed or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn cancel(
        &self,
        redis: &mut impl ConnectionLike,
        request: &str,
    ) -> Result<Option<State>, DbError> {
        stands(self.ask(redis, "cancel", &[request]).await?.0)
    }

    /// Ends holds that are over, up to 500 of them, and returns how many of what is counted came back.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn expire(&self, redis: &mut impl ConnectionLike) -> Result<u64, DbError> {
        Ok(self.ask(redis, "expire", &[""]).await?.0.cast_unsigned())
    }

    /// Deletes requests, up to 500 of them, that were cancelled, or expired, for longer than `age`.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn forget(&self, redis: &mut impl ConnectionLike, age: Duration) -> Result<u64, DbError> {
        let age = Keep::For(age).millis().to_string();
        Ok(self.ask(redis, "forget", &[&age]).await?.0.cast_unsigned())
    }

    async fn ask(
        &self,
        redis: &mut impl ConnectionLike,
        verb: &str,
        args: &[&str],
    ) -> Result<(i64, i64), DbError> {
        let mut call = self.script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        call.arg(verb);
        for arg in args {
            call.arg(*arg);
        }
        call.invoke_async(redis).await.map_err(told)
    }
}

/// Things that are each given once, on Redis: as [`Seats`](crate::Seats), each step one script.
///
/// Here a field of a hash is the net: one seat, one holder. It is as durable as the server, which is to have
/// `maxmemory-policy noeviction`.
#[derive(Debug, Clone)]
pub struct RedisSeats {
    keys: [String; 3],
    script: Script,
}

impl RedisSeats {
    /// The seats of `event`.
    ///
    /// # Errors
    /// That is no name.
    pub fn new(event: impl AsRef<str>) -> Result<Self, InvalidName> {
        let tag = tag(&Name::new(event)?);
        let keys = ["who", "requests", "ended"].map(|what| format!("palisade:seats:{{{tag}}}:{what}"));
        Ok(Self { keys, script: Script::new(include_str!("scripts/seats.lua")) })
    }

    /// Takes `seat` for `request`, if nobody has it.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn book(
        &self,
        redis: &mut impl ConnectionLike,
        seat: &str,
        request: &str,
        keep: Keep,
    ) -> Result<Reserved, DbError> {
        checked("a seat", seat)?;
        checked("a request", request)?;
        let (state, millis) = (keep.state().number().to_string(), keep.millis().to_string());
        match self.ask(redis, "book", &[seat, request, &state, &millis]).await? {
            (FULL, _) => Ok(Reserved::Full { left: 0 }),
            (OTHER_KEEP, millis) => Err(other_keep(request, millis, keep)),
            (state, AGAIN) => State::from_number(Some(state)).map(Reserved::Again),
            (state, _) => State::from_number(Some(state)).map(Reserved::Yes),
        }
    }

    /// Makes a hold last for good. Returns how the request stands then: confirmed, or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn confirm(
        &self,
        redis: &mut impl ConnectionLike,
        seat: &str,
        request: &str,
    ) -> Result<Option<State>, DbError> {
        stands(self.ask(redis, "confirm", &[seat, request]).await?.0)
    }

    /// Gives back what is held. Returns how the request stands then: cancelled, or confirmed or ended before; `None` if there is none.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn cancel(
        &self,
        redis: &mut impl ConnectionLike,
        seat: &str,
        request: &str,
    ) -> Result<Option<State>, DbError> {
        stands(self.ask(redis, "cancel", &[seat, request]).await?.0)
    }

    /// Deletes requests, up to 500 of them, that were cancelled, or expired, for longer than `age`: asking again with their ids is
    /// a new request then.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn forget(&self, redis: &mut impl ConnectionLike, age: Duration) -> Result<u64, DbError> {
        let age = Keep::For(age).millis().to_string();
        Ok(self.ask(redis, "forget", &[&age]).await?.0.cast_unsigned())
    }

    /// The request that has the seat, also if its hold is over and nobody else has come yet.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached.
    pub async fn who(
        &self,
        redis: &mut (impl ConnectionLike + Send + Sync),
        seat: &str,
    ) -> Result<Option<String>, DbError> {
        redis.hget(&self.keys[0], seat).await.map_err(told)
    }

    async fn ask(
        &self,
        redis: &mut impl ConnectionLike,
        verb: &str,
        args: &[&str],
    ) -> Result<(i64, i64), DbError> {
        let mut call = self.script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        call.arg(verb);
        for arg in args {
            call.arg(*arg);
        }
        call.invoke_async(redis).await.map_err(told)
    }
}

/// A name as a Cluster's hash tag: without brackets of its own.
fn tag(name: &Name) -> String {
    name.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

fn within(amount: u64) -> Result<u64, DbError> {
    let too_much =
        || DbError::new(DbErrorKind::Invalid, format!("{amount} is more than a counter can count"));
    Some(amount).filter(|amount| *amount <= MOST).ok_or_else(too_much)
}

fn stands(said: i64) -> Result<Option<State>, DbError> {
    if said == NONE { Ok(None) } else { State::from_number(Some(said)).map(Some) }
}

fn told(error: RedisError) -> DbError {
    DbError::new(DbErrorKind::Other, format!("Redis: {error}; ask again with the same request"))
        .because(error)
}
