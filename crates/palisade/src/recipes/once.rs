use std::future::Future;
use std::time::Duration;

use palisade_core::{BootInstant, Condition, Error, ErrorKind, Name, Reading, Result};

use super::run::run_while_held;
use super::{Mutex, MutexGuard, Stopped};
use crate::client::{Client, Patience};

/// Runs a job once per interval, however many hosts try: cron without doubles.
///
/// The lock is held at least as long as [`Once::at_least`] says, counted from the start and also
/// if the job is done sooner or its process dies: clocks of hosts differ, and a job that takes a
/// millisecond must not run twice because one cron daemon is a second late. It is held at most as
/// long as [`Once::at_most`] says: then the job is stopped.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use palisade::OnceOutcome;
/// # let client = palisade::connect("memory:").await?;
/// let nightly = client.once("nightly-report")?.at_least(Duration::from_secs(60));
/// assert!(matches!(nightly.run(|_| async { "sent" }).await?, OnceOutcome::Ran("sent")));
/// assert!(matches!(nightly.run(|_| async { "sent" }).await?, OnceOutcome::TooSoon { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Once {
    client: Client,
    mutex: Mutex,
    name: Name,
    at_least: Duration,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnceOutcome<T> {
    /// It ran, and returned this.
    Ran(T),
    /// Another runs it right now.
    Running,
    /// The last run began less than [`Once::at_least`] ago.
    TooSoon {
        /// How long that still lasts.
        ready_in: Duration,
    },
}

impl Client {
    /// The job called `name`.
    ///
    /// # Errors
    /// If `name` is no [`Name`], or the engine has no registers that expire.
    pub fn once(&self, name: &str) -> Result<Once> {
        if !self.profile().register_expiry {
            let message = "this engine cannot hold a job back after its process has ended: it has no registers that expire";
            return Err(Error::new(ErrorKind::Unsupported, message).on_engine(self.profile().engine));
        }
        let mutex = self.mutex(name)?;
        Ok(Once {
            client: self.clone(),
            mutex,
            name: Name::internal("once", &Name::new(name)?),
            at_least: Duration::ZERO,
        })
    }
}

impl Once {
    /// No second run begins within this time of the first one's beginning.
    #[must_use]
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = at_least;
        self
    }

    /// A run is stopped after this time.
    #[must_use]
    pub fn at_most(mut self, at_most: Duration) -> Self {
        self.mutex = self.mutex.longest_hold(at_most);
        self
    }

    /// Another TTL than the client's.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.mutex = self.mutex.ttl(ttl);
        self
    }

    /// Runs `work` if it is due and nobody runs it. Does not wait.
    ///
    /// # Errors
    /// [`Stopped`] if the engine could not be reached, or the lock was lost while the work ran:
    /// with [`crate::LostReason::HeldTooLong`] after [`Once::at_most`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, then releases. The interval stays used.
    pub async fn run<F: Future>(
        &self,
        work: impl FnOnce(&MutexGuard) -> F,
    ) -> std::result::Result<OnceOutcome<F::Output>, Stopped> {
        match self.begin(Some(Duration::ZERO)).await.map_err(Stopped::NotTaken)? {
            OnceOutcome::Ran(guard) => run_while_held(guard, work).await.map(OnceOutcome::Ran),
            OnceOutcome::Running => Ok(OnceOutcome::Running),
            OnceOutcome::TooSoon { ready_in } => Ok(OnceOutcome::TooSoon { ready_in }),
        }
    }

    /// Takes the lock and marks the interval as used; the caller runs the job while the guard
    /// lives. Waits at most `limit` until it is due and free; for ever with `None`.
    ///
    /// # Errors
    /// As [`crate::Mutex::acquire`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves no claim behind. The interval may be marked as used.
    pub async fn begin(&self, limit: Option<Duration>) -> Result<OnceOutcome<MutexGuard>> {
        let clock = self.client.clock();
        let end = limit.map_or(BootInstant::FAR_FUTURE, |limit| clock.now() + limit);
        loop {
            let patience = match limit {
                None => Patience::Forever,
                Some(Duration::ZERO) => Patience::Once,
                Some(_) => Patience::Within(end.saturating_since(clock.now())),
            };
            let Some(guard) = self.take(patience).await? else { return Ok(OnceOutcome::Running) };
            let Some(ready_in) = self.ready_in().await? else {
                self.mark(&guard).await?;
                return Ok(OnceOutcome::Ran(guard));
            };
            guard.release().await?;
            let ready = clock.now() + ready_in;
            if ready > end {
                return Ok(OnceOutcome::TooSoon { ready_in });
            }
            clock.sleep_until(ready).await;
        }
    }

    async fn take(&self, patience: Patience) -> Result<Option<MutexGuard>> {
        match patience {
            Patience::Once => self.mutex.try_acquire().await,
            Patience::Within(limit) => self.mutex.acquire_within(limit).await,
            Patience::Forever => self.mutex.acquire().await.map(Some),
        }
    }

    /// How long the last run still holds the next one back.
    async fn ready_in(&self) -> Result<Option<Duration>> {
        match self.client.engine().read(&self.name, None).await? {
            Reading::Fresh(entry) => Ok(entry.value.and(entry.expires_in)),
            Reading::Refused(_) => Ok(None),
        }
    }

    async fn mark(&self, guard: &MutexGuard) -> Result<()> {
        if self.at_least.is_zero() {
            return Ok(());
        }
        let condition = Condition::always().token(guard.fencing_token());
        let value = guard.token().to_string().into();
        match self.client.engine().write(&self.name, value, &condition, Some(self.at_least)).await? {
            palisade_core::Written::Done(_) => Ok(()),
            palisade_core::Written::Refused(refusal) => Err(Error::new(
                ErrorKind::Lost,
                format!("the lock was lost before the job began: {}", refusal.reason),
            )),
        }
    }
}
