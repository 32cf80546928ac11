use std::time::Duration;

use palisade_core::{Change, Error, ErrorKind, Family, Mode, Name, Result};

use super::{guard_type, recipe_options};
use crate::client::{Ask, Client, Options, Patience};

/// At most N holders at a time, each with a numbered slot and a fencing token of its own.
///
/// A crashed holder's slot is given to the next. The number of slots is in force while any claim
/// of the resource lives: asking with another number meanwhile is an error, see
/// [`SemaphoreGuard::resize`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// # let client = palisade::connect("memory:").await?;
/// let calls = client.semaphore("partner-api", 2)?;
/// let (first, second) = (calls.acquire().await?, calls.acquire().await?);
/// assert_eq!((first.slot(), second.slot()), (0, 1));
/// assert!(calls.try_acquire().await?.is_none());
/// # first.release().await?;
/// # second.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    client: Client,
    ask: Ask,
}

impl Client {
    /// The semaphore called `name` with `slots` slots.
    ///
    /// # Errors
    /// If `name` is no [`Name`], `slots` is 0, or the engine grants no slots.
    pub fn semaphore(&self, name: &str, slots: u32) -> Result<Semaphore> {
        if !self.profile().modes.slots {
            return Err(Error::new(ErrorKind::Unsupported, "this engine grants no slots")
                .on_engine(self.profile().engine));
        }
        let name = Name::new(name)?;
        refuse_none(slots, &name)?;
        let ask = Ask::new(name, Family::Permits, Mode::Slot { of: slots });
        Ok(Semaphore { client: self.clone(), ask })
    }
}

fn refuse_none(slots: u32, name: &Name) -> Result<()> {
    if slots == 0 {
        let message = format!("a semaphore has 1 to {} slots, and 0 were asked for", u32::MAX);
        return Err(Error::new(ErrorKind::Invalid, message).about(name));
    }
    Ok(())
}

impl Semaphore {
    recipe_options!();

    fn options(&mut self) -> &mut Options {
        &mut self.ask.options
    }

    /// Waits for a slot. Errors and cancel safety as [`crate::Mutex::acquire`].
    pub async fn acquire(&self) -> Result<SemaphoreGuard> {
        self.client.acquire_forever(&self.ask).await.map(SemaphoreGuard)
    }

    /// Takes a slot if one is free.
    pub async fn try_acquire(&self) -> Result<Option<SemaphoreGuard>> {
        Ok(self.client.acquire(&self.ask, Patience::Once).await?.map(SemaphoreGuard))
    }

    /// Waits for a slot, but not longer than `limit`.
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<SemaphoreGuard>> {
        Ok(self.client.acquire(&self.ask, Patience::Within(limit)).await?.map(SemaphoreGuard))
    }
}

guard_type! {
    /// A held slot of a [`Semaphore`].
    SemaphoreGuard
}

impl SemaphoreGuard {
    /// The number of the slot, from 0. No two holders have the same at a time.
    pub fn slot(&self) -> u32 {
        self.hold.slot.unwrap_or_default()
    }

    /// Puts another number of slots in force for everyone, at once. Holders beyond a smaller
    /// number keep their slots until they release; nobody comes in until enough have.
    ///
    /// # Errors
    /// If `slots` is 0, or the slot is no longer held.
    pub async fn resize(&self, slots: u32) -> Result<()> {
        refuse_none(slots, &self.0.resource())?;
        self.0.change(Change::Mode(Mode::Slot { of: slots })).await
    }
}

#[cfg(test)]
mod tests {
    use crate::{ErrorKind, connect};

    #[tokio::test]
    async fn no_slots_at_all_are_refused_by_name() {
        let client = connect("memory:").await.unwrap();
        let semaphore = client.semaphore("partner-api", 1).unwrap();
        let held = semaphore.acquire().await.unwrap();
        for error in [client.semaphore("partner-api", 0).unwrap_err(), held.resize(0).await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let message = error.to_string();
            assert!(message.contains("\"partner-api\"") && message.contains("1 to 4294967295"), "{message}");
        }
    }
}
