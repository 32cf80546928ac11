//! Reservations: conditional changes in one atomic step, with no lock taken beforehand.

mod counter;
#[cfg(feature = "redis")]
mod redis;
mod seats;

pub use self::counter::{Counter, Stock};
#[cfg(feature = "redis")]
pub use self::redis::{RedisCounter, RedisSeats};
pub use self::seats::Seats;

use std::time::Duration;

use palisade_core::Name;

use crate::{DbError, DbErrorKind};

/// How a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Held for a while: to be confirmed, or it ends by itself.
    Held,
    /// Given for good.
    Confirmed,
    /// Given back.
    Cancelled,
    /// It was not confirmed in time.
    Expired,
}

impl State {
    /// Whether it has what it asked for.
    pub fn is_given(self) -> bool {
        matches!(self, Self::Held | Self::Confirmed)
    }

    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Held => 0,
            Self::Confirmed => 1,
            Self::Cancelled => 2,
            Self::Expired => 3,
        }
    }

    pub(crate) fn from_number(number: Option<i64>) -> Result<Self, DbError> {
        match number {
            Some(0) => Ok(Self::Held),
            Some(1) => Ok(Self::Confirmed),
            Some(2) => Ok(Self::Cancelled),
            Some(3) => Ok(Self::Expired),
            other => {
                Err(DbError::new(DbErrorKind::Corrupt, format!("{other:?} is no state of a reservation")))
            }
        }
    }
}

/// The answer to a request for a reservation. Asking again with the same request id takes nothing, and tells how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// The request was let in; how it stands. What is to be done once for each belongs into the same transaction.
    Yes(State),
    /// The request was let in before; how it stands. What was to be done was done then.
    Again(State),
    /// There is not enough left: so much is. Nothing was taken, and asking again later may succeed.
    Full {
        /// What is left.
        left: u64,
    },
}

impl Reserved {
    /// Whether it has what it asked for.
    pub fn is_given(self) -> bool {
        matches!(self, Self::Yes(state) | Self::Again(state) if state.is_given())
    }

    /// Whether it has just got what it asked for.
    pub fn is_new(self) -> bool {
        matches!(self, Self::Yes(_))
    }
}

/// For how long something is kept for a request. Whoever asks again asks for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// For good: it need not be confirmed.
    Always,
    /// For so long by the server's clock, unless it is confirmed before. At least a millisecond.
    For(Duration),
}

impl Keep {
    pub(crate) fn state(self) -> State {
        match self {
            Self::Always => State::Confirmed,
            Self::For(_) => State::Held,
        }
    }

    pub(crate) fn millis(self) -> i64 {
        match self {
            Self::Always => 0,
            Self::For(time) => i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4).clamp(1, i64::MAX / 4),
        }
    }
}

/// The name of a request, a seat or whatever else is stored.
fn checked(what: &str, text: &str) -> Result<(), DbError> {
    match Name::new(text) {
        Ok(_) => Ok(()),
        Err(problem) => Err(DbError::new(DbErrorKind::Invalid, format!("{what}: {problem}"))),
    }
}

/// Nothing cannot be reserved: it could not be told from what was given back.
fn some(amount: u64) -> Result<(), DbError> {
    if amount == 0 {
        return Err(DbError::new(DbErrorKind::Invalid, "an amount of 0 cannot be reserved: take at least 1"));
    }
    Ok(())
}

/// A request that is repeated must be the same.
fn other_amount(request: &str, before: i64, now: impl std::fmt::Display) -> DbError {
    let message = format!("request {request:?} was made before, for {before} and not {now}");
    DbError::new(DbErrorKind::Invalid, message)
}

fn other_keep(request: &str, before: i64, now: Keep) -> DbError {
    let shown = |millis| if millis == 0 { "for good".to_owned() } else { format!("for {millis} ms") };
    let (before, now) = (shown(before), shown(now.millis()));
    let message = format!("request {request:?} was made before, to be kept {before} and not {now}");
    DbError::new(DbErrorKind::Invalid, message)
}
