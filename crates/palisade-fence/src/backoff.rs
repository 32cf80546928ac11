use std::time::Duration;

use rand::RngExt;

use crate::{DbError, FenceError};

/// How often something is tried, and how long the pauses are: random ones, up to a bound that doubles each time.
///
/// Without chance in it, those who collided would collide again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    tries: u32,
    first: Duration,
    longest: Duration,
}

impl Default for Backoff {
    /// 10 tries, pauses of up to 10 ms at first and up to 1 s at last.
    fn default() -> Self {
        Self { tries: 10, first: Duration::from_millis(10), longest: Duration::from_secs(1) }
    }
}

impl Backoff {
    /// At most so many tries, the first included.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// Pauses of up to `first` after the first try, and of up to `longest` at last.
    #[must_use]
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.first, self.longest) = (first, longest);
        self
    }

    /// Waits before the next try after so many; false if there is none.
    pub(crate) async fn wait(&self, tried: u32) -> bool {
        if tried >= self.tries {
            return false;
        }
        tokio::time::sleep(self.pause(tried)).await;
        true
    }

    fn pause(&self, tried: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << tried.saturating_sub(1).min(20));
        doubled.min(self.longest).mul_f64(rand::rng().random_range(0.0..1.0))
    }
}

/// An error that may say: do the whole transaction again.
pub trait Retryable {
    /// Whether nothing took effect and another try may succeed.
    fn is_retry(&self) -> bool;
}

impl Retryable for DbError {
    fn is_retry(&self) -> bool {
        DbError::is_retry(self)
    }
}

impl Retryable for FenceError {
    fn is_retry(&self) -> bool {
        FenceError::is_retry(self)
    }
}

/// The tries of one piece of work: a transaction that is begun anew when the database says that it should be.
///
/// ```
/// use palisade_fence::{Attempts, Backoff, Database, DbError, Transaction};
///
/// async fn open_account(database: &mut impl Database) -> Result<(), DbError> {
///     let mut tx = database.begin().await?;
///     tx.execute("INSERT INTO account VALUES (?, ?)", &[7.into(), 1000.into()]).await?;
///     tx.commit().await
/// }
///
/// async fn open_account_at_last(database: &mut impl Database) -> Result<(), DbError> {
///     let mut attempts = Attempts::new(Backoff::default());
///     loop {
///         match open_account(database).await {
///             Err(error) if attempts.again(&error).await => {}
///             done => return done,
///         }
///     }
/// }
/// # let mut database = rusqlite::Connection::open_in_memory()?;
/// # database.execute_batch("CREATE TABLE account (id INTEGER, balance INTEGER)")?;
/// # palisade_fence::at_once(open_account_at_last(&mut database))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Attempts {
    backoff: Backoff,
    tried: u32,
}

impl Attempts {
    /// Before the first.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, tried: 0 }
    }

    /// Says whether to try again after `error`, and pauses before that.
    pub async fn again(&mut self, error: &impl Retryable) -> bool {
        self.tried += 1;
        error.is_retry() && self.backoff.wait(self.tried).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_their_bound() {
        let backoff = Backoff::default().pauses(Duration::from_millis(10), Duration::from_millis(35));
        for (tried, most) in [(1, 10), (2, 20), (3, 35), (40, 35)] {
            for _ in 0..100 {
                assert!(backoff.pause(tried) <= Duration::from_millis(most));
            }
        }
    }
}
