use bytes::Bytes;
use futures::StreamExt;
use palisade_core::{
    Condition, Entry, Error, ErrorKind, Family, Matching, Mode, Name, Page, Result, Scope, Selector, Version,
    WatchStream,
};
use serde::{Deserialize, Serialize};

use super::recipe_options;
use crate::client::{Ask, Client, Options};
use crate::guard::Guard;
use crate::register::Register;

/// A double barrier: nobody starts before all have come, nobody is done before all are.
///
/// A participant that dies no longer counts, neither towards starting nor towards leaving. The
/// barrier can be used again once everyone has left.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// # let client = palisade::connect("memory:").await?;
/// let barrier = client.barrier("load-test", 2)?;
/// let (one, two) = tokio::join!(barrier.enter(), barrier.enter());
/// let (one, two) = (one?, two?);
/// let (one, two) = tokio::join!(one.leave(), two.leave());
/// # one?; two?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Barrier {
    client: Client,
    ask: Ask,
    register: Register,
    parties: usize,
}

/// What the participants agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Round {
    number: u64,
    open: bool,
}

impl Client {
    /// The barrier called `name` for `parties` participants.
    ///
    /// # Errors
    /// If `name` is no [`Name`], `parties` is 0, or the engine lacks shared claims or registers.
    pub fn barrier(&self, name: &str, parties: u32) -> Result<Barrier> {
        if parties == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a barrier has at least one participant"));
        }
        if !self.profile().modes.shared {
            return Err(Error::new(ErrorKind::Unsupported, "this engine grants no shared claims")
                .on_engine(self.profile().engine));
        }
        let name = Name::internal("barrier", &Name::new(name)?);
        Ok(Barrier {
            client: self.clone(),
            ask: Ask::new(name.clone(), Family::Rw, Mode::Shared),
            register: self.register_called(name)?,
            parties: parties as usize,
        })
    }
}

impl Barrier {
    recipe_options!();

    fn options(&mut self) -> &mut Options {
        &mut self.ask.options
    }

    /// Comes in and waits until all have.
    ///
    /// # Errors
    /// As [`crate::Mutex::acquire`]; [`ErrorKind::Lost`] if the claim is lost while it waits.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn enter(&self) -> Result<BarrierGuard> {
        let mut changes = self.changes().await?;
        let round = self.wait_closed(&mut changes).await?;
        let guard = self.client.acquire_forever(&self.ask).await?;
        loop {
            let (now, version) = self.round().await?;
            if now.open || now.number > round {
                return Ok(BarrierGuard { barrier: self.clone(), guard, round: now.number });
            }
            if !guard.is_valid() {
                return Err(Error::new(ErrorKind::Lost, "the claim was lost at the barrier"));
            }
            if self.inside().await? >= self.parties {
                self.propose(Round { number: round, open: true }, version).await?;
            } else {
                next(&mut changes).await?;
            }
        }
    }

    /// Waits until the previous round has been left by all; returns the number of the next.
    async fn wait_closed(&self, changes: &mut WatchStream) -> Result<u64> {
        loop {
            let (now, version) = self.round().await?;
            if !now.open {
                return Ok(now.number);
            }
            self.close_if_empty(now, version, changes).await?;
        }
    }

    /// Closes an open round once nobody is inside, or waits for a change.
    async fn close_if_empty(&self, open: Round, version: Version, changes: &mut WatchStream) -> Result<()> {
        if self.inside().await? == 0 {
            return self.propose(Round { number: open.number + 1, open: false }, version).await;
        }
        next(changes).await
    }

    async fn round(&self) -> Result<(Round, Version)> {
        let Entry { value, version, .. } = self.register.read().await?;
        let round = match value {
            None => Round::default(),
            Some(value) => serde_json::from_slice(&value).map_err(|error| {
                Error::new(ErrorKind::Corrupt, "the barrier's register holds something else").because(error)
            })?,
        };
        Ok((round, version))
    }

    /// Moves on unless another did; either way the caller looks again.
    async fn propose(&self, round: Round, version: Version) -> Result<()> {
        let value = serde_json::to_vec(&round)
            .map_err(|error| Error::new(ErrorKind::Internal, "encoding a round").because(error))?;
        self.register.write(Bytes::from(value), Condition::always().version(version)).await.map(drop)
    }

    async fn inside(&self) -> Result<usize> {
        let found = self
            .client
            .engine()
            .inspect(&Selector::resource(self.ask.resource.clone()), &Page::default())
            .await?;
        Ok(found.resources.first().map_or(0, |view| view.holders.len()))
    }

    async fn changes(&self) -> Result<WatchStream> {
        let matching = Matching::Exact(self.ask.resource.clone());
        self.client.engine().watch(&Selector { scope: Scope::Both, matching }).await
    }
}

async fn next(changes: &mut WatchStream) -> Result<()> {
    match changes.next().await {
        Some(change) => change.map(drop),
        None => Err(Error::new(ErrorKind::Closed, "the client was closed")),
    }
}

/// A participant that has entered a [`Barrier`].
#[must_use = "if unused the participant leaves without waiting for the others"]
#[derive(Debug)]
pub struct BarrierGuard {
    barrier: Barrier,
    guard: Guard,
    round: u64,
}

impl BarrierGuard {
    /// Leaves and waits until all have. Dropping the guard leaves without waiting.
    ///
    /// # Cancel safety
    /// Dropping the future leaves without waiting.
    pub async fn leave(self) -> Result<()> {
        let Self { barrier, guard, round } = self;
        let mut changes = barrier.changes().await?;
        guard.release().await?;
        loop {
            let (now, version) = barrier.round().await?;
            if !now.open || now.number > round {
                return Ok(());
            }
            barrier.close_if_empty(now, version, &mut changes).await?;
        }
    }
}
