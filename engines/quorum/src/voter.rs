use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use palisade_core::{BootInstant, Clock, Engine, ErrorKind, Result, Signal};
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;

use crate::config::Node;
use crate::error::{Failure, error};

/// One node, as this client sees it.
#[derive(Debug)]
pub(crate) struct Voter {
    pub(crate) node: Node,
    engine: Mutex<Result<Arc<dyn Engine>, Failure>>,
    /// What it tells unasked, from its first moment on.
    news: Mutex<Option<Receiver<Signal>>>,
    /// Its last answer came in time.
    up: AtomicBool,
}

impl Voter {
    pub(crate) fn new(node: Node) -> Self {
        let nothing = Failure::new(ErrorKind::Unavailable, "not connected yet");
        Self { node, engine: Mutex::new(Err(nothing)), news: Mutex::default(), up: AtomicBool::new(false) }
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

/// Completes with the work, or after `limit` without it. The timer is armed only if the work does
/// not complete at once.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut work = std::pin::pin!(work);
    let mut timer: Option<BoxFuture<'static, ()>> = None;
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        let timer = timer.get_or_insert_with(|| clock.sleep_until(clock.now() + limit));
        timer.as_mut().poll(context).map(|()| {
            Err(error(ErrorKind::Timeout, format!("no answer within {limit:?}")).with_unknown_effect())
        })
    })
    .await
}
