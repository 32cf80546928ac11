use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future was dropped before it completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

/// Polls a future at most so many times, then drops it: how a caller's `select!` or timeout would.
///
/// Run it for 0, 1, 2, … polls until the future completes, and it has been dropped at every await
/// point at which it ever paused.
pub struct CancelAfter<F> {
    /// `None` once dropped.
    future: Option<Pin<Box<F>>>,
    polls_left: usize,
}

impl<F: Future> CancelAfter<F> {
    /// Drops `future` instead of polling it for the `polls + 1`st time.
    pub fn new(polls: usize, future: F) -> Self {
        Self { future: Some(Box::pin(future)), polls_left: polls }
    }
}

impl<F> std::fmt::Debug for CancelAfter<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelAfter").field("polls_left", &self.polls_left).finish_non_exhaustive()
    }
}

impl<F: Future> Future for CancelAfter<F> {
    type Output = Result<F::Output, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left > 0
            && let Some(future) = &mut self.future
        {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            self.polls_left -= 1;
        }
        if self.polls_left > 0 {
            return Poll::Pending;
        }
        // Cut at the pause itself: a future that nobody will wake must not keep us.
        self.future = None;
        Poll::Ready(Err(Cancelled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn two_pauses() -> &'static str {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        "done"
    }

    #[tokio::test]
    async fn every_pause_is_cut_once() {
        let mut outcomes = Vec::new();
        for polls in 0..4 {
            outcomes.push(CancelAfter::new(polls, two_pauses()).await);
        }
        assert_eq!(outcomes, [Err(Cancelled), Err(Cancelled), Err(Cancelled), Ok("done")]);
    }
}
