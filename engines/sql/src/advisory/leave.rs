//! How a claim leaves.

use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Claim, Clock, GoneReason, Result, SystemClock, Withdrawn, within};

use super::book::{Leave, Left, Was};
use super::engine::Inner;

/// A claim that is being given back; goes on by itself if whoever asked for it does not.
struct Departing<'a> {
    inner: &'a Arc<Inner>,
    left: Option<Left>,
}

impl Drop for Departing<'_> {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.inner.depart_later(Left { again: true, ..left }, None);
        }
    }
}

impl Inner {
    pub(super) async fn withdraw_one(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Withdrawn> {
        loop {
            self.check_open()?;
            match self.book.leave(claim.id) {
                Leave::Take(left) => {
                    let waited = left.was == Was::Waiting;
                    let mut departing = Departing { inner: self, left: Some(left.clone()) };
                    let held = self.depart(&left).await;
                    departing.left = None;
                    self.departed(&left, None);
                    return Ok(match (waited, held) {
                        (true, _) => Withdrawn::LeftQueue,
                        (false, true) => Withdrawn::Released,
                        (false, false) => Withdrawn::AlreadyGone,
                    });
                }
                Leave::Nothing => return Ok(Withdrawn::AlreadyGone),
                Leave::Moving => self.until_moved(claim.id).await?,
                Leave::Gone => {
                    let key = self.terms.key_of(&claim.resource);
                    // Should it still be on its way, it must not come in.
                    self.book.bury(claim, key, SystemClock.now());
                    return Ok(Withdrawn::AlreadyGone);
                }
            }
        }
    }

    /// Gives back what a claim has at the server, or may have. Returns whether it was held.
    ///
    /// In the end either the server has said so, or the connection is no more, and with it the lock.
    pub(super) async fn depart(&self, left: &Left) -> bool {
        let unnoted = async {
            // What could not be yet is tried again; the lock is what counts.
            if left.noted
                && let Err(error) = self.note_now(left.id).await
            {
                tracing::debug!(%error, "others are still shown a claim that is gone");
            }
        };
        let unlocked = async {
            if left.was == Was::Waiting {
                self.leave_queue(left).await
            } else {
                within(self.terms.call_timeout, self.unlock(left)).await.flatten()
            }
        };
        let (held, ()) = tokio::join!(unlocked, unnoted);
        if held.is_none() {
            left.seat.end();
        }
        held == Some(true)
    }

    /// Gives a lock back. What was held and is not there any more was changed by a downgrade that nobody waited for: then it is
    /// there as the other kind, or nobody knows. Unless it was given back before: then nothing is left to give, and what
    /// else is held over the connection is none of its business.
    async fn unlock(&self, left: &Left) -> Option<bool> {
        let held = left.seat.leave(left.key, left.shared).await.ok()?;
        if held || left.was != Was::Held {
            return Some(held);
        }
        let as_other = self.profile.modes.shared && left.seat.leave(left.key, !left.shared).await.ok()?;
        (as_other || left.again).then_some(as_other)
    }

    /// Has the server stop waiting. The wait may have ended meanwhile, by a grant, so that the lock is given back behind it.
    async fn leave_queue(&self, left: &Left) -> Option<bool> {
        /// What is told to stop before it has begun goes on.
        const AGAIN: Duration = Duration::from_millis(200);
        let limit = SystemClock.now() + self.terms.call_timeout;
        // Sent only once the server was told: what comes later than this would be stopped instead.
        left.seat.cancel().await.ok()?;
        let leaving = left.seat.leave(left.key, left.shared);
        let mut leaving = std::pin::pin!(leaving);
        loop {
            match tokio::time::timeout(AGAIN, &mut leaving).await {
                Ok(held) => return held.ok(),
                Err(_) if SystemClock.now() > limit || left.seat.has_ended() => return None,
                Err(_) => left.seat.cancel().await.ok()?,
            }
        }
    }

    /// Notes that a claim has left.
    pub(super) fn departed(&self, left: &Left, reason: Option<GoneReason>) {
        self.seats.free(&left.seat, left.key);
        match reason {
            Some(reason) => self.book.gone(left.id, reason),
            None => self.book.forget(left.id),
        }
    }

    /// Gives a claim back in the background. With a reason, it is remembered.
    pub(super) fn depart_later(self: &Arc<Self>, left: Left, reason: Option<GoneReason>) {
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            inner.depart(&left).await;
            inner.departed(&left, reason);
        });
    }
}
