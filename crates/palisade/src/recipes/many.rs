use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use palisade_core::{BootInstant, Family, Mode, Name, Result, Token};

use super::recipe_options;
use crate::client::{Ask, Client, Options, Patience};
use crate::guard::{Guard, LostReason, Released};

/// Several resources, held exclusively, all or nothing.
///
/// They are taken one after the other in the order of their names, whatever the order given, so
/// that two programs that take overlapping sets never wait for each other. That holds only if no
/// other guard is held meanwhile.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// # let client = palisade::connect("memory:").await?;
/// let transfer = client.many(["account/2", "account/1"])?.acquire().await?;
/// assert!(transfer.is_valid());
/// transfer.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Many {
    client: Client,
    names: BTreeSet<Name>,
    options: Options,
}

impl Client {
    /// The set of resources called `names`; a name given twice counts once.
    ///
    /// # Errors
    /// If one is no [`Name`].
    pub fn many<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Many> {
        let names = names.into_iter().map(Name::new).collect::<std::result::Result<_, _>>()?;
        Ok(Many { client: self.clone(), names, options: Options::default() })
    }
}

impl Many {
    recipe_options!();

    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Waits for all of them. Errors and cancel safety as [`crate::Mutex::acquire`].
    pub async fn acquire(&self) -> Result<ManyGuard> {
        loop {
            if let Some(guard) = self.take(Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Takes all of them if all are free.
    pub async fn try_acquire(&self) -> Result<Option<ManyGuard>> {
        self.take(Patience::Once).await
    }

    /// Waits for all of them, but not longer than `limit` in all.
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<ManyGuard>> {
        self.take(Patience::Within(limit)).await
    }

    async fn take(&self, patience: Patience) -> Result<Option<ManyGuard>> {
        let clock = self.client.clock();
        let end = match patience {
            Patience::Within(limit) => clock.now() + limit,
            Patience::Once | Patience::Forever => BootInstant::FAR_FUTURE,
        };
        loop {
            let mut guards = Vec::with_capacity(self.names.len());
            for name in &self.names {
                let left = match patience {
                    Patience::Within(_) => Patience::Within(end.saturating_since(clock.now())),
                    other => other,
                };
                let ask = Ask {
                    options: self.options.clone(),
                    ..Ask::new(name.clone(), Family::Mutex, Mode::Exclusive)
                };
                match self.client.acquire(&ask, left).await? {
                    Some(guard) => guards.push(guard),
                    None => {
                        ManyGuard { guards }.release().await?;
                        return Ok(None);
                    }
                }
            }
            let taken = ManyGuard { guards };
            // One of the first may have been lost while we waited for the last: start over.
            if taken.is_valid() {
                return Ok(Some(taken));
            }
        }
    }
}

/// All of a held [`Many`].
#[must_use = "if unused the claims are released at once"]
#[derive(Debug)]
pub struct ManyGuard {
    guards: Vec<Guard>,
}

impl ManyGuard {
    /// Whether all of them are held for sure at this moment.
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// Each resource with its fencing token, in the order of the names.
    pub fn tokens(&self) -> impl Iterator<Item = (Name, Token)> {
        self.guards.iter().map(|guard| (guard.resource(), guard.token()))
    }

    /// The guards themselves, in the order of the names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The earliest deadline among them.
    pub fn deadline(&self) -> Option<BootInstant> {
        self.guards.iter().filter_map(Guard::deadline).min()
    }

    /// Completes when the first of them is lost.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let each: Vec<BoxFuture<'static, LostReason>> =
            self.guards.iter().map(|guard| guard.lost().boxed()).collect();
        async move {
            if each.is_empty() {
                return future::pending().await;
            }
            future::select_all(each).await.0
        }
    }

    /// Gives all of them back, the last taken first.
    ///
    /// # Errors
    /// The first error, if the engine could not be reached; releases go on in the background.
    ///
    /// # Cancel safety
    /// Safe: all are given back even if the future is dropped.
    pub async fn release(self) -> Result<Released> {
        let mut outcome = Ok(Released::InTime);
        for guard in self.guards.into_iter().rev() {
            match (guard.release().await, &outcome) {
                (Err(error), Ok(_)) => outcome = Err(error),
                (Ok(Released::TooLate), Ok(_)) => outcome = Ok(Released::TooLate),
                _ => {}
            }
        }
        outcome
    }
}
