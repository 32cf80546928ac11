use std::time::Duration;

use palisade_core::{Change, Error, ErrorKind, Family, Mode, Name, Result};

use super::{guard_type, recipe_options};
use crate::client::{Ask, Client, Options, Patience};

/// A lock that many readers or one writer have at a time.
///
/// # Fairness
/// In the order of arrival: a reader that comes after a waiting writer waits behind it, so that
/// writers are not starved.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// # let client = palisade::connect("memory:").await?;
/// let lock = client.rw_lock("catalogue")?;
/// let writer = lock.write().await?;
/// let reader = writer.downgrade().await?;
/// let another = lock.read().await?;
/// assert!(lock.try_write().await?.is_none());
/// # reader.release().await?;
/// # another.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RwLock {
    client: Client,
    name: Name,
    options: Options,
}

impl Client {
    /// The read-write lock called `name`.
    ///
    /// # Errors
    /// If `name` is no [`Name`], or the engine grants no shared claims.
    pub fn rw_lock(&self, name: &str) -> Result<RwLock> {
        if !self.profile().modes.shared {
            return Err(Error::new(ErrorKind::Unsupported, "this engine grants no shared claims")
                .on_engine(self.profile().engine));
        }
        Ok(RwLock { client: self.clone(), name: Name::new(name)?, options: Options::default() })
    }
}

impl RwLock {
    recipe_options!();

    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn ask(&self, mode: Mode) -> Ask {
        Ask { options: self.options.clone(), ..Ask::new(self.name.clone(), Family::Rw, mode) }
    }

    /// Waits to read. Errors and cancel safety as [`crate::Mutex::acquire`].
    pub async fn read(&self) -> Result<RwLockReadGuard> {
        self.client.acquire_forever(&self.ask(Mode::Shared)).await.map(RwLockReadGuard)
    }

    /// Reads if that is possible at once.
    pub async fn try_read(&self) -> Result<Option<RwLockReadGuard>> {
        Ok(self.client.acquire(&self.ask(Mode::Shared), Patience::Once).await?.map(RwLockReadGuard))
    }

    /// Waits to read, but not longer than `limit`.
    pub async fn read_within(&self, limit: Duration) -> Result<Option<RwLockReadGuard>> {
        Ok(self.client.acquire(&self.ask(Mode::Shared), Patience::Within(limit)).await?.map(RwLockReadGuard))
    }

    /// Waits to write. Errors and cancel safety as [`crate::Mutex::acquire`].
    ///
    /// A task that reads and then waits to write gets an error: with two of them, each would wait
    /// for the other for ever. Release the read guard first, and look again after writing began.
    pub async fn write(&self) -> Result<RwLockWriteGuard> {
        self.client.acquire_forever(&self.ask(Mode::Exclusive)).await.map(RwLockWriteGuard)
    }

    /// Writes if that is possible at once.
    pub async fn try_write(&self) -> Result<Option<RwLockWriteGuard>> {
        Ok(self.client.acquire(&self.ask(Mode::Exclusive), Patience::Once).await?.map(RwLockWriteGuard))
    }

    /// Waits to write, but not longer than `limit`.
    pub async fn write_within(&self, limit: Duration) -> Result<Option<RwLockWriteGuard>> {
        Ok(self
            .client
            .acquire(&self.ask(Mode::Exclusive), Patience::Within(limit))
            .await?
            .map(RwLockWriteGuard))
    }
}

guard_type! {
    /// A [`RwLock`] held by a reader.
    RwLockReadGuard
}

guard_type! {
    /// A [`RwLock`] held by its writer.
    RwLockWriteGuard
}

impl RwLockReadGuard {
    /// Always refused, with the guard given back: two readers that both upgrade would wait for
    /// each other for ever. Release, then [`RwLock::write`], then look again.
    ///
    /// # Errors
    /// Always: [`ErrorKind::WouldDeadlock`].
    pub async fn upgrade(self) -> std::result::Result<RwLockWriteGuard, (Self, Error)> {
        match self.0.change(Change::Mode(Mode::Exclusive)).await {
            Ok(()) => Ok(RwLockWriteGuard(self.0)),
            Err(error) => Err((self, error)),
        }
    }
}

impl RwLockWriteGuard {
    /// Goes on as a reader, without a moment in which another could write. The token stays.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock is no longer held; the guard is given back in the background.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock.
    pub async fn downgrade(self) -> Result<RwLockReadGuard> {
        self.0.change(Change::Mode(Mode::Shared)).await?;
        Ok(RwLockReadGuard(self.0))
    }
}
