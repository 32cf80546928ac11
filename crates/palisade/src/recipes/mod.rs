//! The recipes: written once, for all engines.

mod barrier;
mod election;
mod latch;
mod many;
mod mutex;
mod once;
mod run;
mod rw_lock;
mod semaphore;

pub use barrier::{Barrier, BarrierGuard};
pub use election::{Election, Leader, Leadership};
pub use latch::Latch;
pub use many::{Many, ManyGuard};
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceOutcome};
pub use run::Stopped;
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Semaphore, SemaphoreGuard};

/// Declares a guard of one recipe: all of [`crate::Guard`], and its own release.
macro_rules! guard_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[must_use = "if unused the claim is released at once"]
        #[derive(Debug)]
        pub struct $name(pub(crate) $crate::Guard);

        impl $name {
            /// Gives it back and says whether it was still held; see [`crate::Guard::release`].
            ///
            /// # Errors
            /// If the engine could not be reached; the release goes on in the background.
            ///
            /// # Cancel safety
            /// Safe: it is given back even if the future is dropped.
            pub async fn release(self) -> $crate::Result<$crate::Released> {
                self.0.release().await
            }
        }

        impl std::ops::Deref for $name {
            type Target = $crate::Guard;

            fn deref(&self) -> &$crate::Guard {
                &self.0
            }
        }

        /// So that whoever checks tokens takes the guard itself.
        impl From<&$name> for palisade_core::FencingToken {
            fn from(guard: &$name) -> Self {
                guard.fencing_token()
            }
        }
    };
}
pub(crate) use guard_type;

/// Declares the options that all recipes with an `options()` accessor share.
macro_rules! recipe_options {
    () => {
        /// Another TTL than the client's: how long a crash can hold others up.
        ///
        /// Checked when something is acquired.
        #[must_use]
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options().ttl = Some(ttl);
            self
        }

        /// The longest a guard may live: after it the guard is lost, whatever its holder does.
        #[must_use]
        pub fn longest_hold(mut self, longest: std::time::Duration) -> Self {
            self.options().longest_hold = Some(longest);
            self
        }

        /// The trace under which claims are made; shown to those who wait.
        #[must_use]
        pub fn trace(mut self, trace: impl Into<String>) -> Self {
            self.options().trace = Some(trace.into());
            self
        }

        /// Lets a task wait for what it holds itself, because another part of it will release.
        ///
        /// Unless this is called, such a wait is an error instead of a hang.
        #[must_use]
        pub fn may_wait_for_own_task(mut self) -> Self {
            self.options().may_wait_for_own_task = true;
            self
        }
    };
}
pub(crate) use recipe_options;
