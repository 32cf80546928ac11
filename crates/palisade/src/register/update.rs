use std::time::Duration;

use bytes::Bytes;
use palisade_core::{Condition, Entry, Result, Version, Written};

use super::Register;
use crate::chance::Chance;

/// What to do with the value an update read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// Write this instead.
    Write(Bytes),
    /// Delete it.
    Delete,
    /// Leave it as it is.
    Keep,
}

impl<T: Into<Bytes>> From<T> for Update {
    fn from(value: T) -> Self {
        Self::Write(value.into())
    }
}

/// What became of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// It is written, as this version.
    Done(Version),
    /// The value was right already.
    Kept(Entry),
    /// Others wrote in between, every time.
    Conflict {
        /// The version that the last try was made against.
        ours: Version,
        /// What was there instead.
        theirs: Entry,
    },
}

impl Register {
    /// How often [`Register::update`] tries before it gives up.
    pub const UPDATE_TRIES: u32 = 32;

    /// Reads, computes and writes back, again with growing random pauses while others write in
    /// between, at most [`Register::UPDATE_TRIES`] times.
    ///
    /// # Errors
    /// If the engine cannot be reached. Giving up is [`Updated::Conflict`], with both versions.
    ///
    /// # Cancel safety
    /// Not safe: the write may have been made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> palisade::Result<()> {
    /// # let client = palisade::connect("memory:").await?;
    /// let hits = client.register("hits")?;
    /// hits.update(|old| {
    ///     let old: u64 = old.and_then(|old| std::str::from_utf8(old).ok()?.parse().ok()).unwrap_or(0);
    ///     (old + 1).to_string()
    /// })
    /// .await?;
    /// assert_eq!(hits.read().await?.value.unwrap(), "1");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn update<U: Into<Update>>(&self, change: impl FnMut(Option<&Bytes>) -> U) -> Result<Updated> {
        self.update_within(Self::UPDATE_TRIES, change).await
    }

    /// As [`Register::update`] with `tries` tries; 1 aborts at the first conflict.
    ///
    /// # Errors
    /// As [`Register::update`].
    ///
    /// # Cancel safety
    /// Not safe: the write may have been made.
    pub async fn update_within<U: Into<Update>>(
        &self,
        tries: u32,
        mut change: impl FnMut(Option<&Bytes>) -> U,
    ) -> Result<Updated> {
        let mut seen = self.read().await?;
        let mut pause = Pause::default();
        for remaining in (0..tries.max(1)).rev() {
            let condition = Condition::always().version(seen.version);
            let written = match change(seen.value.as_ref()).into() {
                Update::Keep => return Ok(Updated::Kept(seen)),
                Update::Write(value) => self.write(value, condition).await?,
                Update::Delete => self.delete(condition).await?,
            };
            match written {
                Written::Done(version) => return Ok(Updated::Done(version)),
                Written::Refused(refusal) if remaining == 0 => {
                    return Ok(Updated::Conflict { ours: seen.version, theirs: refusal.current });
                }
                Written::Refused(refusal) => {
                    let clock = self.client().clock();
                    clock.sleep_until(clock.now() + pause.next(self.client().chance())).await;
                    // What refused us is a fresh read, unless the pause was long; the version
                    // condition is what makes the write safe either way.
                    seen = refusal.current;
                }
            }
        }
        Ok(Updated::Kept(seen))
    }
}

/// Growing random pauses, so that writers who collided do not collide again.
#[derive(Debug, Default)]
struct Pause {
    tries: u32,
}

impl Pause {
    const FIRST: Duration = Duration::from_micros(200);
    const LONGEST: Duration = Duration::from_millis(50);

    fn next(&mut self, chance: &dyn Chance) -> Duration {
        let longest = (Self::FIRST * 2u32.saturating_pow(self.tries)).min(Self::LONGEST);
        self.tries += 1;
        longest.mul_f64(chance.part())
    }
}
