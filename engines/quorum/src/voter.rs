use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// The last time that a majority had agreed, its answer was there or came soon.
    prompt: AtomicBool,
}

impl Voter {
    pub(crate) fn new(node: Node) -> Self {
        let nothing = Failure::new(ErrorKind::Unavailable, "not connected yet");
        Self {
            node,
            engine: Mutex::new(Err(nothing)),
            news: Mutex::default(),
            up: AtomicBool::new(false),
            prompt: AtomicBool::new(true),
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
    pub(crate) fn is_prompt(&self) -> bool {
        self.is_up() && self.prompt.load(Ordering::Relaxed)
    }

    pub(crate) fn set_prompt(&self, prompt: bool) {
        self.prompt.store(prompt, Ordering::Relaxed);
    }

    /// Whether a vote that was asked for at `asked` counts: the node has not forgotten it since, and
    /// whatever it had forgotten before has expired.
    pub(crate) fn counts(&self, asked: BootInstant, now: BootInstant, longest_ttl: Duration) -> bool {
        let Ok(engine) = self.engine() else { return false };
        engine.forgot_at().is_none_or(|forgot| forgot < asked && forgot + longest_ttl <= now)
    }

    /// Why its votes do not count now, if so.
    pub(crate) fn forgetful(&self, now: BootInstant, longest_ttl: Duration) -> Option<Duration> {
        let forgot = self.engine().ok()?.forgot_at()?;
        let left = (forgot + longest_ttl).saturating_since(now);
        (!left.is_zero()).then_some(left)
    }
}
