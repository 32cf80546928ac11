//! What is done without being asked.

use std::sync::{Arc, Weak};
use std::time::Duration;

use palisade_core::{Clock, Error, ErrorKind, GoneReason, Result, Signal, SystemClock};

use super::engine::Inner;
use super::seat::Seat;

/// Keeps sessions from ending for their silence, and ends those that nobody needs.
pub(super) async fn care(inner: Arc<Inner>) {
    loop {
        let care = inner.seats.care();
        care.end.iter().for_each(|seat| seat.end());
        for seat in care.beat {
            // One that does not answer ends with the claims on it, when nobody can renew them.
            tokio::spawn(async move {
                if let Err(error) = seat.beat().await {
                    tracing::debug!(%error, "a session did not answer");
                }
            });
        }
        tokio::select! {
            () = tokio::time::sleep(care.again_in) => {}
            () = inner.until_closed() => return,
        }
    }
}

/// Ends claims that nobody renews, though their connection goes on.
pub(super) async fn reap(inner: Arc<Inner>) {
    loop {
        let (lapsed, next) = inner.book.lapsed(SystemClock.now());
        for left in lapsed {
            inner.depart_later(left, Some(GoneReason::Expired));
        }
        tokio::select! {
            () = SystemClock.sleep_until(next) => {}
            () = inner.book.sooner.notified() => {}
            () = inner.until_closed() => return,
        }
    }
}

impl Inner {
    /// Makes a connection, and sees to it that its end is noticed.
    pub(super) async fn make_seat(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Seat>> {
        let name = format!("{}{}", self.seat_names, self.seats.number());
        let (seat, facts) = self.terms.sit(name, ttl, &self.desk).await?;
        if facts.source != self.desk.inner.facts.lock().source {
            return Err(Error::new(ErrorKind::Unavailable, "another database answers"));
        }
        *self.forgot_at.lock() = facts.forgot_at;
        let seat = Arc::new(seat);
        self.runtime.spawn(watch_over(Arc::downgrade(self), Arc::clone(&seat)));
        Ok(seat)
    }

    /// Tells whoever held something over a connection that it is gone.
    pub(super) fn seat_lost(&self, seat: &Arc<Seat>) {
        self.seats.remove(seat);
        let (held, noted) = self.book.seat_lost(seat);
        for claim in held {
            self.signals.send(Signal::Gone { claim, reason: GoneReason::SessionLost });
        }
        for claim in noted {
            self.note(claim);
        }
    }
}

async fn watch_over(inner: Weak<Inner>, seat: Arc<Seat>) {
    seat.ended().await;
    if let Some(inner) = inner.upgrade() {
        inner.seat_lost(&seat);
    }
}
