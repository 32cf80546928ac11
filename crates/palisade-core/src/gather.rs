use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::nap::within;

/// What an engine sends in one call because it was asked about at the same time: questions `Q`, each with an
/// answer `A`.
///
/// Who comes while nothing is under way goes alone and at once. Who comes while something is goes as soon as
/// all tasks that are ready to run have run, with all who came meanwhile: nobody waits for another's answer,
/// and many tasks cost the server little more than one.
#[derive(Debug)]
pub struct Gather<Q, A> {
    traffic: Arc<Traffic>,
    waiting: Waiting<Q, A>,
}

/// The calls that are under way; of one kind, or of several that are to leave together.
#[derive(Debug, Default)]
pub struct Traffic {
    under_way: AtomicUsize,
    /// Told when no call is under way any more.
    none: Notify,
    /// Told when a call has ended.
    ended: Notify,
}

type Waiting<Q, A> = Arc<Mutex<Vec<Gathered<Q, A>>>>;

/// One question, and who wants to hear the answer.
#[derive(Debug)]
pub struct Gathered<Q, A> {
    /// What is asked.
    pub question: Q,
    tell: oneshot::Sender<A>,
}

impl<Q, A> Gathered<Q, A> {
    /// Whether somebody still waits for it.
    pub fn is_wanted(&self) -> bool {
        !self.tell.is_closed()
    }

    /// The question, and where the answer goes.
    pub fn into_parts(self) -> (Q, oneshot::Sender<A>) {
        (self.question, self.tell)
    }

    /// Answers it.
    pub fn tell(self, answer: A) {
        // Nobody may want to know any more.
        let _ = self.tell.send(answer);
    }
}

impl<Q, A> Default for Gather<Q, A> {
    fn default() -> Self {
        Self::among(Arc::default())
    }
}

impl<Q, A> Gather<Q, A> {
    /// One whose calls count together with those of others.
    pub fn among(traffic: Arc<Traffic>) -> Self {
        Self { traffic, waiting: Arc::default() }
    }

    /// The right to go alone, if nothing is under way and nobody waits: nobody is overtaken, so that all
    /// servers of a quorum are asked in the same order, and count alike.
    pub fn alone(&self) -> Option<UnderWay<'_>> {
        if !self.waiting.lock().is_empty() {
            return None;
        }
        let first = self.traffic.under_way.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        first.is_ok().then(|| self.counted())
    }

    /// Notes that a call is under way.
    pub fn depart(&self) -> UnderWay<'_> {
        self.traffic.under_way.fetch_add(1, Ordering::AcqRel);
        self.counted()
    }

    fn counted(&self) -> UnderWay<'_> {
        UnderWay { traffic: &self.traffic }
    }

    /// Waits until no call is under way, but no longer than `patience`: whoever sends to many servers at once gains
    /// more by larger calls than it loses by a short wait. All who wait go on together, and need not look
    /// whether others were faster. May be dropped at any time.
    pub async fn until_none(&self, patience: Duration) {
        let none = self.traffic.none.notified();
        if self.traffic.under_way.load(Ordering::Acquire) > 0 {
            within(patience, none).await;
        }
    }

    /// Waits until fewer calls than `most` are under way, but no longer than `patience`: they may be under way over a
    /// connection that is of no use any more. Where a server answers one after the other, more at once gain nothing but
    /// smaller calls. May be dropped at any time.
    pub async fn until_below(&self, most: usize, patience: Duration) {
        let below = async {
            loop {
                let mut ended = std::pin::pin!(self.traffic.ended.notified());
                ended.as_mut().enable();
                if self.traffic.under_way.load(Ordering::Acquire) < most {
                    return;
                }
                ended.await;
            }
        };
        within(patience, below).await;
    }

    /// Joins those who wait. For the first of them `go` sees to it that they leave.
    ///
    /// The answer never comes if whoever leaves with them ends before: then the receiver is told so. Dropped
    /// before they leave, the question is not asked; later, its answer is lost.
    pub fn join(&self, question: Q, go: impl FnOnce(Departure<Q, A>)) -> oneshot::Receiver<A> {
        let (tell, told) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        waiting.push(Gathered { question, tell });
        let first = waiting.len() == 1;
        drop(waiting);
        if first {
            go(Departure(Some(Arc::clone(&self.waiting))));
        }
        told
    }
}

/// The duty to leave with those who wait. If whoever has it ends before, as with its runtime, they are told
/// that no answer will come.
#[derive(Debug)]
pub struct Departure<Q, A>(Option<Waiting<Q, A>>);

impl<Q, A> Departure<Q, A> {
    /// All who wait, but for those who do not any more, once everyone had the chance to join.
    pub async fn leave(mut self) -> Vec<Gathered<Q, A>> {
        tokio::task::yield_now().await;
        let mut gathered = self.take();
        gathered.retain(Gathered::is_wanted);
        gathered
    }

    fn take(&mut self) -> Vec<Gathered<Q, A>> {
        self.0.take().map(|waiting| std::mem::take(&mut *waiting.lock())).unwrap_or_default()
    }
}

impl<Q, A> Drop for Departure<Q, A> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A call under way, until it is dropped.
#[derive(Debug)]
pub struct UnderWay<'a> {
    traffic: &'a Traffic,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.traffic.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.traffic.none.notify_waiters();
        }
        self.traffic.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_first_goes_alone_and_the_others_together() {
        let gather = Arc::new(Gather::<&str, u32>::default());
        let alone = gather.alone().unwrap();
        assert!(gather.alone().is_none());
        let mut departures = Vec::new();
        let mut told: Vec<_> =
            (0..3).map(|_| gather.join("a", |departure| departures.push(departure))).collect();
        assert_eq!(departures.len(), 1, "one of them sends for all");
        drop(told.remove(0));
        let gathered = departures.remove(0).leave().await;
        assert_eq!(gathered.len(), 2, "who does not wait any more is not sent");
        for one in gathered {
            one.tell(7);
        }
        for told in told {
            assert_eq!(told.await, Ok(7));
        }
        let waiting = gather.join("a", |departure| departures.push(departure));
        drop(alone);
        assert!(gather.alone().is_none(), "nobody is overtaken");
        drop(departures);
        assert!(waiting.await.is_err(), "nobody waits for what will not leave");
        assert!(gather.alone().is_some());
    }

    #[tokio::test]
    async fn those_of_one_traffic_leave_together_once_it_is_over() {
        let traffic = Arc::<Traffic>::default();
        let claims = Gather::<(), ()>::among(Arc::clone(&traffic));
        let withdrawals = Gather::<(), ()>::among(traffic);
        let (alone, other) = (claims.alone().unwrap(), withdrawals.depart());
        assert!(withdrawals.alone().is_none(), "the others count too");
        let mut first = std::pin::pin!(claims.until_none(Duration::from_mins(1)));
        let mut second = std::pin::pin!(withdrawals.until_none(Duration::from_mins(1)));
        assert!(futures::poll!(first.as_mut()).is_pending());
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(alone);
        assert!(futures::poll!(first.as_mut()).is_pending(), "one is under way still");
        drop(other);
        first.await;
        let _left = claims.depart();
        second.await;
    }

    #[tokio::test]
    async fn who_waits_for_fewer_goes_on_when_one_has_ended() {
        let gather = Gather::<(), ()>::default();
        let (first, second) = (gather.depart(), gather.depart());
        let mut waiting = std::pin::pin!(gather.until_below(2, Duration::from_mins(1)));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(first);
        waiting.await;
        gather.until_below(1, Duration::from_millis(2)).await;
        drop(second);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_others_for_long() {
        let gather = Gather::<(), ()>::default();
        let _stuck = gather.depart();
        let begun = tokio::time::Instant::now();
        gather.until_none(Duration::from_millis(2)).await;
        assert!(begun.elapsed() < Duration::from_millis(5));
    }
}
