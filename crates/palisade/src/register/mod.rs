//! Registers: named values that are written only under a condition.

mod fenced;
mod update;

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use palisade_core::{
    Condition, Entry, Error, ErrorKind, FencingToken, Name, Raise, Reading, Result, Selector, WatchEvent,
    Written,
};

pub use self::fenced::{Fenced, Stale};
pub use self::update::{Update, Updated};
use crate::client::Client;
use crate::guard::Guard;

/// A named value with a version and a fence.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// use palisade::{Condition, Written};
/// # let client = palisade::connect("memory:").await?;
/// let balance = client.register("balance")?;
/// balance.write("1000", Condition::always().absent()).await?;
/// let seen = balance.read().await?;
/// balance.write("500", Condition::always().version(seen.version)).await?;
/// let outdated = balance.write("700", Condition::always().version(seen.version)).await?;
/// let Written::Refused(refusal) = outdated else { unreachable!() };
/// assert_eq!(refusal.current.value.unwrap(), "500");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Register {
    client: Client,
    name: Name,
}

impl Client {
    /// The register called `name`.
    ///
    /// # Errors
    /// If `name` is no [`Name`], or the engine keeps no registers.
    pub fn register(&self, name: &str) -> Result<Register> {
        self.register_called(Name::new(name)?)
    }

    pub(crate) fn register_called(&self, name: Name) -> Result<Register> {
        if !self.profile().registers {
            return Err(Error::new(ErrorKind::Unsupported, "this engine keeps no registers")
                .on_engine(self.profile().engine)
                .about(&name));
        }
        Ok(Register { client: self.clone(), name })
    }
}

impl Register {
    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Reads it. Sees every write that was acknowledged before.
    pub async fn read(&self) -> Result<Entry> {
        match self.client.engine().read(&self.name, None).await? {
            Reading::Fresh(entry) => Ok(entry),
            Reading::Refused(refusal) => Ok(refusal.current),
        }
    }

    /// Writes it under `condition`. A refused write had no effect and returns what is there.
    ///
    /// # Errors
    /// If the engine cannot be reached; [`Error::effect`] says whether it may have been written.
    ///
    /// # Cancel safety
    /// Not safe: the write may have been made. Read to find out.
    pub async fn write(&self, value: impl Into<Bytes>, condition: Condition) -> Result<Written> {
        self.client.engine().write(&self.name, value.into(), &condition, None).await
    }

    /// As [`Register::write`], and the value goes away by itself after `expires_in`.
    ///
    /// # Errors
    /// As [`Register::write`]; [`ErrorKind::Unsupported`] if the engine's registers do not expire.
    pub async fn write_expiring(
        &self,
        value: impl Into<Bytes>,
        condition: Condition,
        expires_in: Duration,
    ) -> Result<Written> {
        if !self.client.profile().register_expiry {
            return Err(Error::new(ErrorKind::Unsupported, "this engine's registers do not expire")
                .on_engine(self.client.profile().engine)
                .about(&self.name));
        }
        self.client.engine().write(&self.name, value.into(), &condition, Some(expires_in)).await
    }

    /// Deletes it under `condition`. Version and fence stay.
    pub async fn delete(&self, condition: Condition) -> Result<Written> {
        self.client.engine().delete(&self.name, &condition).await
    }

    /// Its value as it changes, beginning with now. Values that came and went between two looks
    /// may be left out; the latest never is.
    ///
    /// # Errors
    /// If the engine cannot be watched.
    pub async fn watch(&self) -> Result<BoxStream<'static, Result<Entry>>> {
        let changes = self.client.engine().watch(&Selector::register(self.name.clone())).await?;
        let now = self.read().await?;
        let told = now.version;
        let later = changes
            .filter_map(async |event| match event {
                Ok(WatchEvent::Register(_, entry)) => Some(Ok(entry)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            })
            .filter(move |entry| {
                let news = entry.as_ref().map_or(true, |entry| entry.version > told);
                std::future::ready(news)
            });
        Ok(stream::once(std::future::ready(Ok(now))).chain(later).boxed())
    }

    /// Opens the register for the holder of `guard`: from now on no older holder can write it.
    ///
    /// # Errors
    /// [`Stale::Fenced`] if a later holder has opened or written it already.
    pub async fn fenced(&self, guard: &Guard) -> Result<Fenced, Stale> {
        self.open(guard, false).await
    }

    /// As [`Register::fenced`], but starts the fence anew from the guard's token source: after
    /// moving from one engine to another, when tokens of the two do not compare.
    ///
    /// An operator's decision: holders of the old source are fenced out for good, and nothing
    /// protects against those of the new source that are older than `guard`.
    ///
    /// # Errors
    /// If the engine cannot be reached.
    pub async fn rebase(&self, guard: &Guard) -> Result<Fenced, Stale> {
        self.open(guard, true).await
    }

    /// As [`Register::rebase`] for a token whose guard lives elsewhere, such as the one that
    /// `palisade run` exports.
    ///
    /// # Errors
    /// If the engine cannot be reached.
    pub async fn rebase_to(&self, token: FencingToken) -> Result<Fenced, Stale> {
        self.open_with(token, true).await
    }

    async fn open(&self, guard: &Guard, rebase: bool) -> Result<Fenced, Stale> {
        self.open_with(guard.fencing_token(), rebase).await
    }

    async fn open_with(&self, token: FencingToken, rebase: bool) -> Result<Fenced, Stale> {
        let raise = Raise { token: token.clone(), rebase };
        match self.client.engine().read(&self.name, Some(&raise)).await? {
            Reading::Fresh(opened) => Ok(Fenced::new(self.clone(), token, opened)),
            Reading::Refused(refusal) => Err(Stale::from_refusal(&self.name, refusal)),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}
