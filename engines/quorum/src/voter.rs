use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Engine, ErrorKind, Result, Signal};
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;

use crate::config::Node;
use crate::error::Failure;

/// One node, as this client sees it.
#[derive(Debug)]
pub(crate) struct Voter {
    pub(crate) node: Node,
    engine: Mutex<Result<Arc<dyn Engine>, Failure>>,
    /// What it tells unasked, from its first moment on.
    news: Mutex<Option<Receiver<Signal>>>,
    /// Its last answer came in time.
    up: AtomicBool,
    /// Until when nobody waits for it once a majority has agreed: it kept others waiting. Nanoseconds since boot.
    late_until: AtomicU64,
}

impl Voter {
    pub(crate) fn new(node: Node) -> Self {
        let nothing = Failure::new(ErrorKind::Unavailable, "not connected yet");
        Self {
            node,
            engine: Mutex::new(Err(nothing)),
            news: Mutex::default(),
            up: AtomicBool::new(false),
            late_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn connected(&self, engine: Arc<dyn Engine>) {
        *self.news.lock() = Some(engine.signals().subscribe());
        *self.engine.lock() = Ok(engine);
    }

    pub(crate) fn take_news(&self) -> Option<Receiver<Signal>> {
        self.news.lock().take()
    }

    pub(crate) fn not_connected(&self, failure: Failure) {
        *self.engine.lock() = Err(failure);
    }

    pub(crate) fn engine(&self) -> Result<Arc<dyn Engine>, Failure> {
        self.engine.lock().clone()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Notes whether it answers; returns whether that is news.
    pub(crate) fn set_up(&self, up: bool) -> bool {
        self.up.swap(up, Ordering::Relaxed) != up
    }

    /// Whether it is worth a moment to wait for it, although a majority has agreed.
    pub(crate) fn is_prompt(&self, now: BootInstant) -> bool {
        self.is_up() && now.as_nanos() >= self.late_until.load(Ordering::Relaxed)
    }

    /// Notes that its answer came before anything was decided.
    pub(crate) fn was_prompt(&self) {
        self.late_until.store(0, Ordering::Relaxed);
    }

    /// Notes that it was waited for in vain, so long. It is given another chance after a while: as long as nobody waits for it,
    /// a release overtakes its claim each time, which makes it slow, and its answers come too late to be found prompt.
    pub(crate) fn was_late(&self, now: BootInstant, waited: Duration) {
        const SHARE: u32 = 64;
        self.late_until.store((now + waited * SHARE).as_nanos(), Ordering::Relaxed);
    }

    /// Whether a vote that was asked for at `asked` counts: the node has not forgotten it since, and
    /// whatever it had forgotten before has expired.
    pub(crate) fn counts(&self, asked: BootInstant, now: BootInstant, longest_ttl: Duration) -> bool {
        let engine = self.engine.lock();
        let Ok(engine) = &*engine else { return false };
        engine.forgot_at().is_none_or(|forgot| forgot < asked && forgot + longest_ttl <= now)
    }

    /// Why its votes do not count now, if so.
    pub(crate) fn forgetful(&self, now: BootInstant, longest_ttl: Duration) -> Option<Duration> {
        let forgot = self.engine().ok()?.forgot_at()?;
        let left = (forgot + longest_ttl).saturating_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_was_late_is_waited_for_again_after_a_while() {
        let open = Arc::new(|| std::future::pending().boxed());
        let voter = Voter::new(Node { name: "a".to_owned(), open });
        let (now, waited) = (BootInstant::from_nanos(7), Duration::from_millis(1));
        assert!(!voter.is_prompt(now), "it cannot be reached");
        voter.set_up(true);
        assert!(voter.is_prompt(now));
        voter.was_late(now, waited);
        assert!(!voter.is_prompt(now + waited * 10), "it would be waited for most of the time");
        assert!(voter.is_prompt(now + waited * 100));
        voter.was_late(now, waited);
        voter.was_prompt();
        assert!(voter.is_prompt(now));
    }
}
