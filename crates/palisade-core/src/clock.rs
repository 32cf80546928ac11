use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Add;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::nap::Nap;

/// Where a program takes its time from; tests and simulations drive their own.
///
/// Deadlines of guards are compared with this clock only. It must never run backwards, and it
/// must run while the machine is suspended: a guard that slept through its TTL is not valid.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The present.
    fn now(&self) -> BootInstant;

    /// Completes once [`Clock::now`] has reached `deadline`.
    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()>;
}

/// A moment on this machine's boot-time clock, in nanoseconds since boot.
///
/// Meaningless on another machine and after a reboot. `std::time::Instant` will not do: on Linux
/// it stands still during suspend (rust-lang/rust#87906).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// A moment that never comes.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The moment `nanos` after boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here, zero if it lies ahead.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` before this one, at most back to boot.
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(nanos(later)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The machine's clock: `CLOCK_BOOTTIME` on Linux.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> BootInstant {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const BOOT: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const BOOT: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(BOOT);
        // The kernel never reports a negative boot time.
        #[allow(clippy::cast_sign_loss, reason = "both fields are non-negative")]
        BootInstant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()> {
        Box::pin(Nap::until(deadline))
    }
}

/// A clock that moves only when told to.
///
/// ```
/// use std::time::Duration;
/// use palisade_core::{Clock, ManualClock};
/// let clock = ManualClock::new();
/// let start = clock.now();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now().saturating_since(start), Duration::from_secs(3));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<Mutex<Hands>>);

#[derive(Debug, Default)]
struct Hands {
    now: u64,
    next_sleeper: u64,
    sleepers: BTreeMap<(u64, u64), Waker>,
}

impl ManualClock {
    /// A clock that shows one hour after boot, so that "earlier" has room.
    pub fn new() -> Self {
        let clock = Self::default();
        clock.0.lock().now = 3_600_000_000_000;
        clock
    }

    /// Moves time on and wakes every sleeper whose moment has come.
    pub fn advance(&self, by: Duration) {
        let due = {
            let mut hands = self.0.lock();
            hands.now = hands.now.saturating_add(nanos(by));
            let after_now = (hands.now.saturating_add(1), 0);
            let later = hands.sleepers.split_off(&after_now);
            std::mem::replace(&mut hands.sleepers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// When the next sleeper wants to be woken, if one sleeps.
    pub fn next_wake(&self) -> Option<BootInstant> {
        self.0.lock().sleepers.keys().next().map(|(at, _)| BootInstant(*at))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> BootInstant {
        BootInstant(self.0.lock().now)
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()> {
        Box::pin(ManualSleep { clock: self.clone(), deadline: deadline.0, key: None })
    }
}

struct ManualSleep {
    clock: ManualClock,
    deadline: u64,
    key: Option<(u64, u64)>,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut hands = clock.0.lock();
        if hands.now >= self.deadline {
            return Poll::Ready(());
        }
        let deadline = self.deadline;
        let key = *self.key.get_or_insert_with(|| {
            hands.next_sleeper += 1;
            (deadline, hands.next_sleeper)
        });
        hands.sleepers.insert(key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.clock.0.lock().sleepers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn manual_sleepers_wake_exactly_when_due_and_leave_nothing_behind() {
        let clock = ManualClock::new();
        let early = clock.sleep_until(clock.now() + Duration::from_secs(1));
        let late = clock.sleep_until(clock.now() + Duration::from_secs(2));
        let early = tokio::spawn(early);
        let late = tokio::spawn(late);
        while clock.0.lock().sleepers.len() < 2 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(1));
        early.await.unwrap();
        assert!(!late.is_finished());
        late.abort();
        assert!(late.await.unwrap_err().is_cancelled());
        assert_eq!(clock.next_wake(), None);
    }

    #[tokio::test]
    async fn the_system_clock_rises_and_sleeps() {
        let before = SystemClock.now();
        SystemClock.sleep_until(before + Duration::from_millis(20)).await;
        assert!(SystemClock.now().saturating_since(before) >= Duration::from_millis(20));
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(BootInstant::FAR_FUTURE + Duration::MAX, BootInstant::FAR_FUTURE);
        assert_eq!(BootInstant::from_nanos(5).saturating_sub(Duration::from_secs(1)).as_nanos(), 0);
    }
}
