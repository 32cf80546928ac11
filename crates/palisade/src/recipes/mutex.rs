use std::time::Duration;

use palisade_core::{Family, Mode, Name, Result};

use super::{guard_type, recipe_options};
use crate::client::{Ask, Client, Options, Patience};

/// A lock that one holder has at a time.
///
/// # Fairness
/// First come, first served where the engine can; its profile says so.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// # let client = palisade::connect("memory:").await?;
/// let mutex = client.mutex("invoice/7")?;
/// let guard = mutex.acquire().await?;
/// assert!(mutex.try_acquire().await?.is_none());
/// println!("writing with token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Mutex {
    client: Client,
    ask: Ask,
}

impl Client {
    /// The mutex called `name`.
    ///
    /// # Errors
    /// If `name` is no [`Name`].
    pub fn mutex(&self, name: &str) -> Result<Mutex> {
        Ok(Mutex { client: self.clone(), ask: Ask::new(Name::new(name)?, Family::Mutex, Mode::Exclusive) })
    }
}

impl Ask {
    pub(crate) fn new(resource: Name, family: Family, mode: Mode) -> Self {
        Self { resource, family, mode, value: None, options: Options::default() }
    }
}

impl Mutex {
    recipe_options!();

    fn options(&mut self) -> &mut Options {
        &mut self.ask.options
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// If the engine cannot be reached for a whole TTL, if an operator evicts the waiting claim,
    /// or if this task would wait for itself.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind, and loses the place in the queue.
    pub async fn acquire(&self) -> Result<MutexGuard> {
        self.client.acquire_forever(&self.ask).await.map(MutexGuard)
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// If the engine cannot be reached. *Held by another* is `None`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn try_acquire(&self) -> Result<Option<MutexGuard>> {
        Ok(self.client.acquire(&self.ask, Patience::Once).await?.map(MutexGuard))
    }

    /// Waits for the lock, but not longer than `limit`.
    ///
    /// # Errors
    /// As [`Mutex::acquire`]. *Not in time* is `None`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind, and loses the place in the queue.
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<MutexGuard>> {
        Ok(self.client.acquire(&self.ask, Patience::Within(limit)).await?.map(MutexGuard))
    }
}

guard_type! {
    /// A held [`Mutex`].
    MutexGuard
}
