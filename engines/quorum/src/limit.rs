use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared};
use palisade_core::{Clock, ErrorKind, Result};

use crate::error::error;

/// Until when answers are waited for: one timer for all that are asked at the same moment. Each timer of its own has the
/// runtime wake itself, which for five nodes takes longer than to send to one.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    after: Duration,
    timer: Shared<BoxFuture<'static, ()>>,
}

impl Limit {
    pub(crate) fn new(clock: &dyn Clock, after: Duration) -> Self {
        Self { after, timer: clock.sleep_until(clock.now() + after).shared() }
    }

    /// Completes with the work, or without it when the time is up. The timer is armed only if the work does not complete
    /// at once.
    pub(crate) async fn keep<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let Self { after, mut timer } = self;
        let mut work = std::pin::pin!(work);
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => timer.poll_unpin(context).map(|()| {
                Err(error(ErrorKind::Timeout, format!("no answer within {after:?}")).with_unknown_effect())
            }),
        })
        .await
    }
}
