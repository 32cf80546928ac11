use std::time::Duration;

use bytes::Bytes;
use palisade_core::{
    Condition, Entry, Error, ErrorKind, Matching, Name, Raise, Reading, Result, Selector, Written,
};

use crate::engine::Inner;
use crate::error::unexpected;
use crate::rows::Stored;

/// A refusal of ours means that another's write came in between; so one of them gets on.
const CONTENDED: usize = 1000;

impl Inner {
    pub(crate) async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        match raise {
            None => {
                let stored = self.link.line().await?.fetch(&self.config.namespace, register).await?;
                Ok(Reading::Fresh(stored.register.entry(stored.now)))
            }
            Some(raise) => self.decide(register, |stored| stored.register.raise(stored.now, raise)).await,
        }
    }

    /// Writes a register; `None` deletes it.
    pub(crate) async fn write(
        &self,
        register: &Name,
        value: Option<&Bytes>,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        let after = expires_in.map(|after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        self.decide(register, |stored| {
            let expires = after.map(|after| stored.now.saturating_add(after));
            stored.register.write(stored.now, value.cloned(), condition, expires)
        })
        .await
    }

    /// Decides about a register as it is, and stores what was decided unless it has changed meanwhile.
    async fn decide<T>(&self, register: &Name, work: impl Fn(&mut Stored) -> Result<T>) -> Result<T> {
        for _ in 0..CONTENDED {
            let line = self.link.line().await?;
            let mut stored = line.fetch(&self.config.namespace, register).await?;
            let before = stored.register.clone();
            let outcome = work(&mut stored)?;
            if stored.register == before || line.store(&self.config.namespace, &stored).await? {
                return Ok(outcome);
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "others write this register all the time"))
    }

    /// All registers that `selector` means and that were ever written, also deleted ones.
    pub(crate) async fn registers(&self, selector: &Selector) -> Result<Vec<(Name, Entry)>> {
        let line = self.link.line().await?;
        let found = match &selector.matching {
            Matching::Exact(name) => vec![line.fetch(&self.config.namespace, name).await?],
            Matching::Prefix(prefix) => line.fetch_all(&self.config.namespace, prefix).await?,
        };
        let mut registers = Vec::new();
        for stored in found.into_iter().filter(|stored| stored.register.version > 0) {
            let name = Name::from_stored(&stored.name).map_err(|_| unexpected())?;
            registers.push((name, stored.register.entry(stored.now)));
        }
        Ok(registers)
    }
}
