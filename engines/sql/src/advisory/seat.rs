#[cfg(feature = "postgres")]
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Result};

#[cfg(feature = "mysql")]
use crate::mysql;
#[cfg(feature = "postgres")]
use crate::postgres;

/// One connection that holds session locks: they end with it. What its methods do is said in each dialect's `seat.rs`.
///
/// A lock that one session takes twice it has twice, so that nobody may ask for a key over a seat that has it.
#[derive(Debug)]
pub(crate) enum Seat {
    #[cfg(feature = "postgres")]
    Postgres(Arc<postgres::Seat>),
    #[cfg(feature = "mysql")]
    MySql(mysql::Seat),
}

/// Has whichever seat it is do something.
macro_rules! each {
    ($self:expr, $seat:ident => $call:expr) => {
        match $self {
            #[cfg(feature = "postgres")]
            Seat::Postgres($seat) => $call,
            #[cfg(feature = "mysql")]
            Seat::MySql($seat) => $call,
        }
    };
}

impl Seat {
    pub(super) fn name(&self) -> &str {
        each!(self, seat => seat.name())
    }

    /// What the server calls it.
    pub(super) fn pid(&self) -> i64 {
        each!(self, seat => seat.pid())
    }

    pub(super) async fn end_when_idle(&self, idle: Duration) -> Result<()> {
        each!(self, seat => seat.end_when_idle(idle).await)
    }

    pub(super) async fn attempt(&self, key: i64, shared: bool) -> Result<Option<i64>> {
        #[cfg(not(feature = "postgres"))]
        let _ = shared;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(seat) => seat.attempt(key, shared).await,
            #[cfg(feature = "mysql")]
            Self::MySql(seat) => seat.attempt(key).await,
        }
    }

    pub(super) async fn wait(&self, key: i64, shared: bool) -> Result<i64> {
        #[cfg(not(feature = "postgres"))]
        let _ = shared;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(seat) => seat.wait(key, shared).await,
            #[cfg(feature = "mysql")]
            Self::MySql(seat) => seat.wait(key).await,
        }
    }

    pub(super) async fn leave(&self, key: i64, shared: bool) -> Result<bool> {
        #[cfg(not(feature = "postgres"))]
        let _ = shared;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(seat) => seat.leave(key, shared).await,
            #[cfg(feature = "mysql")]
            Self::MySql(seat) => seat.leave(key).await,
        }
    }

    pub(super) async fn downgrade(&self, key: i64) -> Result<bool> {
        #[cfg(not(feature = "postgres"))]
        let _ = key;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(seat) => seat.downgrade(key).await,
            // Nobody is granted what could be.
            #[cfg(feature = "mysql")]
            Self::MySql(_) => Err(crate::error::unexpected()),
        }
    }

    pub(super) async fn beat(&self) -> Result<BootInstant> {
        each!(self, seat => seat.beat().await)
    }

    /// A token above `floor` for `key`, which is held.
    pub(super) async fn token_above(&self, key: i64, floor: u64) -> Result<i64> {
        #[cfg(not(feature = "mysql"))]
        let _ = key;
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(seat) => seat.token_above(floor).await,
            #[cfg(feature = "mysql")]
            Self::MySql(seat) => seat.token_above(key, floor).await,
        }
    }

    pub(super) async fn cancel(&self) -> Result<()> {
        each!(self, seat => seat.cancel().await)
    }

    pub(super) fn calls(&self) -> usize {
        each!(self, seat => seat.calls())
    }

    /// How many calls stand in the way of another. On PostgreSQL none do: what is asked for meanwhile goes in one statement,
    /// and the more of it there is, the less each takes.
    pub(super) fn calls_ahead(&self) -> usize {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => 0,
            #[cfg(feature = "mysql")]
            Self::MySql(seat) => seat.calls(),
        }
    }

    pub(super) fn silent(&self) -> Duration {
        each!(self, seat => seat.silent())
    }

    pub(super) fn end(&self) {
        each!(self, seat => seat.end());
    }

    /// Completes once one that was ended is no more at the server, as far as that can be told.
    pub(super) async fn stopped(&self) {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
            #[cfg(feature = "mysql")]
            Self::MySql(seat) => seat.stopped().await,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        each!(self, seat => seat.has_ended())
    }

    pub(super) async fn ended(&self) {
        each!(self, seat => seat.ended().await);
    }
}
