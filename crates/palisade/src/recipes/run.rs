use std::fmt;
use std::future::Future;

use futures::future::{Either, select};
use palisade_core::{Error, Result};

use super::{
    ManyGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphoreGuard,
};
use crate::guard::LostReason;

/// Why [`Mutex::run`] did not bring a result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stopped {
    /// The lock was lost while the work ran; the work was dropped before anyone else could hold it.
    Lost(LostReason),
    /// The lock could not be taken; the work never began.
    NotTaken(Error),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => write!(f, "the lock was lost while the work ran: {reason}"),
            Self::NotTaken(_) => f.write_str("the lock could not be taken"),
        }
    }
}

impl std::error::Error for Stopped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost(_) => None,
            Self::NotTaken(error) => Some(error),
        }
    }
}

/// What `run` needs of a guard.
pub(crate) trait Held {
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static;
    fn release(self) -> impl Future<Output = Result<crate::Released>> + Send;
}

macro_rules! held {
    ($($guard:ty),*) => {$(
        impl Held for $guard {
            fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
                self.0.lost()
            }

            async fn release(self) -> Result<crate::Released> {
                <$guard>::release(self).await
            }
        }
    )*};
}

held!(MutexGuard, RwLockReadGuard, RwLockWriteGuard, SemaphoreGuard);

impl Held for ManyGuard {
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        Self::lost(self)
    }

    async fn release(self) -> Result<crate::Released> {
        Self::release(self).await
    }
}

/// Runs `work` while `guard` is held; drops it when the guard is lost.
///
/// The guard outlives the work in every case: success, loss, panic (unwinding drops the work
/// first), and cancellation.
pub(crate) async fn run_while_held<G: Held, F: Future>(
    guard: G,
    work: impl FnOnce(&G) -> F,
) -> std::result::Result<F::Output, Stopped> {
    let lost = guard.lost();
    let outcome = {
        let work = std::pin::pin!(work(&guard));
        match select(work, std::pin::pin!(lost)).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right((reason, _)) => Err(Stopped::Lost(reason)),
        }
    };
    if outcome.is_ok()
        && let Err(error) = guard.release().await
    {
        // The work is done; the release goes on in the background and one TTL bounds it.
        tracing::debug!(%error, "release failed after the work was done");
    }
    outcome
}

macro_rules! run {
    ($recipe:ty, $method:ident, $acquire:ident, $guard:ty) => {
        impl $recipe {
            /// Takes the lock, runs `work`, and releases on success, error, panic and cancel.
            ///
            /// The work is stopped, that is dropped, when the lock is lost, before anyone else can
            /// hold it. It can stop only at an await.
            ///
            /// # Errors
            /// [`Stopped`] if the lock could not be taken or was lost. What `work` returns, errors
            /// included, is the `Ok` value.
            ///
            /// # Cancel safety
            /// Dropping the future drops the work, then releases.
            pub async fn $method<F: Future>(
                &self,
                work: impl FnOnce(&$guard) -> F,
            ) -> std::result::Result<F::Output, Stopped> {
                let guard = self.$acquire().await.map_err(Stopped::NotTaken)?;
                run_while_held(guard, work).await
            }
        }
    };
}

run!(Mutex, run, acquire, MutexGuard);
run!(Semaphore, run, acquire, SemaphoreGuard);
run!(RwLock, run_reading, read, RwLockReadGuard);
run!(RwLock, run_writing, write, RwLockWriteGuard);
run!(super::Many, run, acquire, ManyGuard);
