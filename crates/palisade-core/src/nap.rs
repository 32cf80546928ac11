use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep};

use crate::clock::{BootInstant, Clock, SystemClock};

/// The work's outcome, or `None` if it does not come within `limit`. No timer is set if it is there at once.
///
/// What is asked of a server is nearly always answered in time, and Tokio's own `timeout` has the runtime wake itself for
/// each question, which costs more than to send it.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let end = Instant::now().checked_add(limit).map_or(Until::Moment(BootInstant::FAR_FUTURE), Until::Limit);
    let mut nap = Nap { until: end, timer: None };
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Pin::new(&mut nap).poll(context).map(|()| None),
    })
    .await
}

/// Completes when a moment has come, by a timer that was set for something else before, if there is one.
///
/// To set a timer that is the next to be due has the runtime write to itself, wake, and look for news: some 3 µs, a tenth of what
/// a question to a server costs. A timer that is no longer needed is therefore not taken back but kept, as it is set, for
/// whoever needs one of the same thread and runtime that is due no earlier; it is set anew when it is due and still in use.
#[derive(Debug)]
pub(crate) struct Nap {
    until: Until,
    timer: Option<Timer>,
}

#[derive(Debug, Clone, Copy)]
enum Until {
    /// A moment that comes also while the machine is suspended.
    Moment(BootInstant),
    /// The end of a patience, which does not run meanwhile.
    Limit(Instant),
}

impl Until {
    /// Tokio's timers follow `CLOCK_MONOTONIC`, which stands still during suspend. Looking again
    /// this often bounds how late a sleeper learns that the machine was away.
    const LOOK_AGAIN: Duration = Duration::from_secs(1);

    /// When to look next; `None` if it has come.
    fn look_at(self) -> Option<Instant> {
        match self {
            Self::Moment(moment) => {
                let left = moment.saturating_since(SystemClock.now());
                (!left.is_zero()).then(|| Instant::now() + left.min(Self::LOOK_AGAIN))
            }
            Self::Limit(limit) => (limit > Instant::now()).then_some(limit),
        }
    }
}

#[derive(Debug)]
struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// Only a runtime that runs tells the time: it is the one of whoever waits.
    runtime: Id,
}

// Nothing is dropped while it is borrowed: a timer has a waker, whose task may have naps of its own.
thread_local! {
    static SPARE: RefCell<Vec<Timer>> = const { RefCell::new(Vec::new()) };
}

impl Nap {
    pub(crate) fn until(moment: BootInstant) -> Self {
        Self { until: Until::Moment(moment), timer: None }
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(timer) = &mut self.timer {
                ready!(timer.sleep.as_mut().poll(context));
            }
            let Some(due) = self.until.look_at() else { return Poll::Ready(()) };
            match &mut self.timer {
                Some(timer) => timer.sleep.as_mut().reset(due),
                None => self.timer = Some(Timer::due_by(due)),
            }
        }
    }
}

impl Drop for Nap {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.keep();
        }
    }
}

impl Timer {
    /// How many are kept: few are in use at once by what one thread asks, and each may wake it once in vain.
    const KEPT: usize = 4;

    /// The last that is due until then, or a new one.
    fn due_by(due: Instant) -> Self {
        let runtime = Handle::current().id();
        let kept = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            let early = spare.iter().enumerate().filter(|(_, timer)| timer.sleep.deadline() <= due);
            let early = early.filter(|(_, timer)| timer.runtime == runtime);
            let last = early.max_by_key(|(_, timer)| timer.sleep.deadline()).map(|(at, _)| at);
            let last = last.map(|at| spare.swap_remove(at));
            // Whatever belongs to another runtime would keep what is left of it.
            let others: Vec<Self> = spare.extract_if(.., |timer| timer.runtime != runtime).collect();
            (last, others)
        });
        // The thread may be about to end.
        let kept = kept.ok().and_then(|(last, _)| last);
        kept.unwrap_or_else(|| Self { sleep: Box::pin(tokio::time::sleep_until(due)), runtime })
    }

    fn keep(self) {
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            spare.push(self);
            if spare.len() > Self::KEPT {
                let due = spare.iter().enumerate().min_by_key(|(_, timer)| timer.sleep.deadline());
                let first = due.map(|(at, _)| at);
                first.map(|at| spare.swap_remove(at))
            } else {
                None
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_mins(1);

    fn spare() -> Vec<Instant> {
        SPARE.with_borrow(|spare| spare.iter().map(|timer| timer.sleep.deadline()).collect())
    }

    fn nap(length: Duration) -> Nap {
        Nap::until(SystemClock.now() + length)
    }

    async fn begin(nap: &mut Nap) {
        assert!(futures::poll!(nap).is_pending());
    }

    #[tokio::test]
    async fn a_timer_is_used_again_as_it_was_set() {
        let mut first = nap(SHORT);
        begin(&mut first).await;
        drop(first);
        let set = spare();
        assert_eq!(set.len(), 1);

        let mut second = nap(LONG);
        begin(&mut second).await;
        assert_eq!(spare(), []);
        drop(second);
        assert_eq!(spare(), set, "it was set anew although it was due earlier");
    }

    #[tokio::test]
    async fn who_sleeps_by_an_old_timer_wakes_neither_early_nor_late() {
        let mut old = nap(SHORT / 2);
        begin(&mut old).await;
        drop(old);
        for length in [SHORT, SHORT / 4, SHORT * 2] {
            let began = SystemClock.now();
            nap(length).await;
            let slept = SystemClock.now().saturating_since(began);
            assert!(slept >= length, "woke after {slept:?} of {length:?}");
            assert!(slept < length + Duration::from_secs(5));
        }
    }

    #[tokio::test]
    async fn a_timer_that_is_due_later_is_not_waited_for() {
        let mut old = nap(LONG);
        begin(&mut old).await;
        drop(old);
        assert_eq!(within(SHORT, std::future::pending::<()>()).await, None);
        assert_eq!(spare().len(), 2);
    }

    #[test]
    fn timers_of_a_runtime_that_ended_are_not_used() {
        let sleep = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                nap(SHORT).await;
                let mut unused = nap(LONG);
                begin(&mut unused).await;
                drop(unused);
            });
            runtime.block_on(async { Handle::current().id() })
        };
        let (first, second) = (sleep(), sleep());
        assert_ne!(first, second);
        SPARE.with_borrow(|spare| assert!(spare.iter().all(|timer| timer.runtime == second)));
    }

    #[tokio::test]
    async fn few_are_kept_and_of_those_the_last() {
        let lengths = (1..=10).map(|minutes| nap(SHORT * minutes));
        let mut naps: Vec<Nap> = lengths.collect();
        for nap in &mut naps {
            begin(nap).await;
        }
        let last = naps.last().and_then(|nap| nap.timer.as_ref()).map(|timer| timer.sleep.deadline());
        drop(naps);
        let kept = spare();
        assert_eq!(kept.len(), Timer::KEPT);
        assert!(kept.contains(&last.unwrap()));
    }

    #[tokio::test]
    async fn a_patience_may_be_endless() {
        assert_eq!(within(Duration::MAX, nap(SHORT)).await, Some(()));
    }

    #[tokio::test]
    async fn no_timer_is_set_for_what_is_there() {
        assert_eq!(within(LONG, async { 7 }).await, Some(7));
        assert_eq!(spare(), []);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn many_who_move_between_threads_all_wake_in_time() {
        let sleepers = (0..200_u32).map(|number| {
            tokio::spawn(async move {
                for turn in 0..20 {
                    let length = Duration::from_millis(u64::from((number * 7 + turn) % 13));
                    let began = SystemClock.now();
                    if turn % 3 == 0 {
                        assert_eq!(within(length, tokio::time::sleep(LONG)).await, None);
                    } else {
                        assert_eq!(within(LONG, nap(length)).await, Some(()));
                    }
                    assert!(SystemClock.now().saturating_since(began) >= length);
                }
            })
        });
        let all = futures::future::try_join_all(sleepers);
        tokio::time::timeout(Duration::from_secs(30), all).await.expect("somebody sleeps on").unwrap();
    }
}
