//! The client's promises under trouble: an engine that cannot be reached, replies that get lost,
//! a process that stands still. Time is driven by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use palisade::{Client, ConnectionState, Effect, ErrorKind, LostReason, Released};
use palisade_core::memory::{MemoryEngine, MemoryStore};
use palisade_core::{
    Claim, Claimed, Clock, Engine, Error, Layer, ManualClock, Renewed, Result, Signal, Withdrawn,
};
use tokio::sync::Semaphore;

/// A memory engine whose calls can be cut before or after they take effect.
#[derive(Debug)]
struct Trouble {
    inner: MemoryEngine,
    unreachable: AtomicBool,
    lose_next_claim_reply: AtomicBool,
    /// So many renewals are never answered.
    swallow_renewals: AtomicUsize,
    /// Replies to claims are held back until there is a permit.
    hold_back_claim_replies: AtomicBool,
    permits: Semaphore,
    calls: AtomicUsize,
    renewals: AtomicUsize,
    /// How long an answer to a renewal takes.
    renewals_take: Duration,
    clock: ManualClock,
}

impl Trouble {
    fn reach(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.unreachable.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the line is cut"));
        }
        Ok(())
    }
}

#[async_trait]
impl Layer for Trouble {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.reach()?;
        let answer = Engine::claim(&self.inner, claim).await;
        if self.hold_back_claim_replies.load(Ordering::Relaxed) {
            self.permits.acquire().await.unwrap().forget();
        }
        if self.lose_next_claim_reply.swap(false, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Timeout, "the reply got lost").with_unknown_effect());
        }
        answer
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.reach()?;
        let swallow = |left: usize| left.checked_sub(1);
        if self.swallow_renewals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, swallow).is_ok() {
            std::future::pending::<()>().await;
        }
        self.clock.sleep_until(self.clock.now() + self.renewals_take).await;
        Engine::renew(&self.inner, claims).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.reach()?;
        Engine::withdraw(&self.inner, claims).await
    }
}

struct Rig {
    clock: ManualClock,
    engine: Arc<Trouble>,
    /// A second client of the same store, untroubled.
    rival: Client,
    client: Client,
}

const TTL: Duration = Duration::from_secs(6);

fn rig() -> Rig {
    slow_rig(Duration::ZERO)
}

fn slow_rig(renewals_take: Duration) -> Rig {
    let clock = ManualClock::new();
    let store = MemoryStore::new(Arc::new(clock.clone()));
    let engine = Arc::new(Trouble {
        inner: store.connect(""),
        unreachable: AtomicBool::new(false),
        lose_next_claim_reply: AtomicBool::new(false),
        swallow_renewals: AtomicUsize::new(0),
        hold_back_claim_replies: AtomicBool::new(false),
        permits: Semaphore::new(0),
        calls: AtomicUsize::new(0),
        renewals: AtomicUsize::new(0),
        renewals_take,
        clock: clock.clone(),
    });
    let build = |engine: Arc<dyn Engine>| {
        Client::builder().ttl(TTL).clock(Arc::new(clock.clone())).over(engine).unwrap()
    };
    let rival = build(Arc::new(store.connect("")));
    let client = build(Arc::clone(&engine) as Arc<dyn Engine>);
    Rig { clock, engine, rival, client }
}

impl Rig {
    /// Lets time pass in steps small enough for every timer to be served.
    async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(20);
        let mut left = time;
        while !left.is_zero() {
            settle().await;
            let now = step.min(left);
            self.clock.advance(now);
            left -= now;
        }
        settle().await;
    }
}

/// Lets every task that can run do so.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_guard_is_renewed_for_as_long_as_it_lives() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    rig.pass(TTL * 5).await;
    assert!(guard.is_valid());
    assert!(rig.rival.mutex("x").unwrap().try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn a_holder_that_cannot_renew_is_told_before_the_engine_can_give_it_away() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    rig.engine.unreachable.store(true, Ordering::Relaxed);
    let lost = tokio::spawn(guard.lost());
    let granted_again = async {
        while rig.rival.mutex("x").unwrap().try_acquire().await.unwrap().is_none() {
            assert!(guard.is_valid() || guard.remaining().is_zero());
            rig.pass(Duration::from_millis(20)).await;
        }
    };
    granted_again.await;
    assert!(!guard.is_valid());
    assert!(lost.is_finished(), "told only after another held it");
    assert_eq!(lost.await.unwrap(), LostReason::EngineUnreachable);
}

#[tokio::test]
async fn an_outage_shorter_than_the_ttl_loses_nothing() {
    let rig = rig();
    let mut states = Box::pin(rig.client.connection());
    assert_eq!(states.next().await, Some(ConnectionState::Connected));
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    rig.engine.unreachable.store(true, Ordering::Relaxed);
    rig.pass(TTL / 2).await;
    assert_eq!(states.next().await, Some(ConnectionState::Suspended));
    assert!(guard.trouble().is_some_and(|trouble| trouble.contains("the line is cut")));
    rig.engine.unreachable.store(false, Ordering::Relaxed);
    rig.pass(TTL * 2).await;
    assert_eq!(guard.trouble(), None);
    assert_eq!(states.next().await, Some(ConnectionState::Reconnected));
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn two_renewals_that_are_never_answered_lose_nothing() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    // The time limit of a call, 5 s, is longer than what is left of the TTL then.
    rig.engine.swallow_renewals.store(2, Ordering::Relaxed);
    rig.pass(TTL).await;
    assert_eq!(rig.engine.swallow_renewals.load(Ordering::Relaxed), 0);
    assert!(guard.is_valid());
    // That the first two run out of time later is no news.
    rig.pass(TTL).await;
    assert!(guard.is_valid());
    assert_eq!(guard.trouble(), None);
    assert_eq!(Box::pin(rig.client.connection()).next().await, Some(ConnectionState::Connected));
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn two_renewals_that_run_out_of_time_lose_nothing() {
    let rig = rig();
    let hasty = Client::builder().ttl(TTL).call_timeout(TTL / 4).clock(Arc::new(rig.clock.clone()));
    let hasty = hasty.over(Arc::clone(&rig.engine) as Arc<dyn Engine>).unwrap();
    let guard = hasty.mutex("x").unwrap().acquire().await.unwrap();
    rig.engine.swallow_renewals.store(2, Ordering::Relaxed);
    rig.pass(TTL * 2).await;
    assert_eq!(rig.engine.swallow_renewals.load(Ordering::Relaxed), 0);
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_failed_renewal_of_what_was_given_back_is_no_news() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    rig.engine.swallow_renewals.store(1, Ordering::Relaxed);
    rig.pass(TTL / 3 + Duration::from_millis(100)).await;
    assert_eq!(rig.engine.swallow_renewals.load(Ordering::Relaxed), 0);
    guard.release().await.unwrap();
    // Until the time limit of the call, 5 s, is over.
    rig.pass(TTL).await;
    assert_eq!(Box::pin(rig.client.connection()).next().await, Some(ConnectionState::Connected));
}

#[tokio::test]
async fn a_renewal_that_fails_while_a_later_one_is_under_way_changes_nothing() {
    let rig = rig();
    let hasty = Client::builder().ttl(TTL).call_timeout(TTL / 3).clock(Arc::new(rig.clock.clone()));
    let hasty = hasty.over(Arc::clone(&rig.engine) as Arc<dyn Engine>).unwrap();
    let guard = hasty.mutex("x").unwrap().acquire().await.unwrap();
    rig.engine.swallow_renewals.store(2, Ordering::Relaxed);
    // Sent after 4 and 7 twelfths; the first has run out of time after 8, the second after 11.
    rig.pass(TTL * 9 / 12).await;
    assert_eq!(rig.engine.renewals.load(Ordering::Relaxed), 2);
    assert_eq!(guard.trouble(), None);
    assert_eq!(Box::pin(hasty.connection()).next().await, Some(ConnectionState::Connected));
    rig.pass(TTL).await;
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_renewal_is_not_repeated_while_there_is_time_for_its_answer() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    settle().await;
    rig.engine.swallow_renewals.store(1, Ordering::Relaxed);
    // More than are kept: as some were missed, everything is renewed, here with its whole TTL ahead.
    for _ in 0..1100 {
        Engine::signals(&rig.engine.inner).send(Signal::Connection(ConnectionState::Connected));
    }
    rig.pass(TTL * 4 / 12).await;
    assert_eq!(rig.engine.renewals.load(Ordering::Relaxed), 1);
    rig.pass(TTL * 2 / 12).await;
    assert_eq!(rig.engine.renewals.load(Ordering::Relaxed), 2);
    rig.pass(TTL).await;
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_slow_engine_is_asked_once_per_quarter_of_a_ttl_at_most() {
    for renewals_take in [TTL / 5, TTL * 3 / 10, TTL * 55 / 100] {
        let rig = slow_rig(renewals_take);
        let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
        rig.pass(TTL * 12).await;
        assert!(guard.is_valid(), "{renewals_take:?}");
        let renewals = rig.engine.renewals.load(Ordering::Relaxed);
        assert!((24..=48).contains(&renewals), "{renewals} where each takes {renewals_take:?}");
    }
}

#[tokio::test]
async fn a_process_that_stood_still_says_so_and_never_becomes_valid_again() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    settle().await;
    rig.clock.advance(TTL * 3);
    assert!(!guard.is_valid(), "validity is read from the clock, not from the task");
    rig.pass(Duration::from_millis(100)).await;
    assert_eq!(guard.lost().await, LostReason::PausedTooLong);
    assert_eq!(guard.release().await.unwrap(), Released::TooLate);
}

#[tokio::test]
async fn a_lost_reply_is_answered_by_asking_again() {
    let rig = rig();
    rig.engine.lose_next_claim_reply.store(true, Ordering::Relaxed);
    let mutex = rig.client.mutex("x").unwrap();
    let taken = tokio::spawn(async move { mutex.try_acquire().await });
    rig.pass(Duration::from_millis(200)).await;
    let guard = taken.await.unwrap().unwrap().expect("the claim was granted the first time");
    assert_eq!(rig.rival.show("x").await.unwrap().holders.len(), 1);
    guard.release().await.unwrap();
    assert!(rig.rival.show("x").await.unwrap().holders.is_empty());
}

#[tokio::test]
async fn the_longest_hold_ends_a_guard_whatever_its_holder_does() {
    let rig = rig();
    let mutex = rig.client.mutex("x").unwrap().longest_hold(TTL * 2);
    let guard = mutex.acquire().await.unwrap();
    rig.pass(TTL + TTL * 9 / 10).await;
    assert!(guard.is_valid());
    rig.pass(TTL / 5).await;
    assert_eq!(guard.lost().await, LostReason::HeldTooLong);
    assert!(rig.rival.mutex("x").unwrap().try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_dropped_guard_is_released_also_through_an_outage() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    rig.engine.unreachable.store(true, Ordering::Relaxed);
    drop(guard);
    rig.pass(Duration::from_millis(500)).await;
    assert_eq!(rig.rival.show("x").await.unwrap().holders.len(), 1);
    rig.engine.unreachable.store(false, Ordering::Relaxed);
    rig.pass(Duration::from_millis(500)).await;
    assert!(rig.rival.show("x").await.unwrap().holders.is_empty());
}

#[tokio::test]
async fn ten_thousand_guards_cost_a_handful_of_calls_per_interval() {
    let rig = rig();
    let mut guards = Vec::new();
    for number in 0..10_000 {
        let mutex = rig.client.mutex(&format!("lock/{number}")).unwrap();
        guards.push(mutex.acquire().await.unwrap());
        if number % 1000 == 0 {
            rig.pass(Duration::from_millis(100)).await;
        }
    }
    let before = rig.engine.calls.load(Ordering::Relaxed);
    let intervals = 5;
    rig.pass(TTL / 3 * intervals).await;
    let calls = rig.engine.calls.load(Ordering::Relaxed) - before;
    assert!(guards.iter().all(|guard| guard.is_valid()));
    assert!(calls <= 4 * intervals as usize, "{calls} calls in {intervals} intervals");
}

#[tokio::test]
async fn a_task_that_would_wait_for_itself_gets_an_error() {
    let rig = rig();
    let mutex = rig.client.mutex("x").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let error = mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
    settle().await;
    assert!(rig.rival.show("x").await.unwrap().waiters.is_empty());

    let lock = rig.client.rw_lock("y").unwrap();
    let reader = lock.read().await.unwrap();
    assert_eq!(lock.write().await.unwrap_err().kind(), ErrorKind::WouldDeadlock);
    let (reader, error) = reader.upgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
    assert!(reader.is_valid());

    // Another task may wait for it, and so may this one once the guard has moved on.
    let other = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    settle().await;
    guard.release().await.unwrap();
    other.await.unwrap().unwrap().release().await.unwrap();
    reader.release().await.unwrap();
}

#[tokio::test]
async fn closing_the_client_releases_and_tells_every_guard() {
    let rig = rig();
    let guard = rig.client.mutex("x").unwrap().acquire().await.unwrap();
    rig.client.close().await;
    assert_eq!(guard.lost().await, LostReason::Closed);
    assert!(rig.rival.mutex("x").unwrap().try_acquire().await.unwrap().is_some());
    assert_eq!(rig.client.mutex("x").unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_wait_with_a_limit_ends_in_time_and_leaves_nothing() {
    let rig = rig();
    let guard = rig.rival.mutex("x").unwrap().acquire().await.unwrap();
    let mutex = rig.client.mutex("x").unwrap();
    let before = rig.clock.now();
    let waiting = tokio::spawn(async move { mutex.acquire_within(Duration::from_secs(1)).await });
    rig.pass(Duration::from_millis(1100)).await;
    assert!(waiting.await.unwrap().unwrap().is_none());
    assert!(rig.clock.now().saturating_since(before) < Duration::from_millis(1200));
    assert!(rig.rival.show("x").await.unwrap().waiters.is_empty());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_comes_late_in_its_ttl_is_renewed_at_once() {
    let rig = rig();
    let rival = rig.rival.mutex("x").unwrap().acquire().await.unwrap();
    let mutex = rig.client.mutex("x").unwrap();
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    settle().await;
    // The queued claim cannot be renewed, and is handed over with a quarter of its TTL left.
    rig.engine.unreachable.store(true, Ordering::Relaxed);
    rig.pass(TTL * 3 / 4).await;
    rival.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.remaining() < TTL / 3);
    rig.engine.unreachable.store(false, Ordering::Relaxed);
    rig.pass(TTL).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_arrives_while_the_client_closes_is_no_guard() {
    let rig = rig();
    rig.engine.hold_back_claim_replies.store(true, Ordering::Relaxed);
    let mutex = rig.client.mutex("x").unwrap();
    let taking = tokio::spawn(async move { mutex.acquire().await });
    settle().await;
    assert_eq!(rig.rival.show("x").await.unwrap().holders.len(), 1);
    rig.client.close().await;
    rig.engine.permits.add_permits(1);
    assert_eq!(taking.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_claim_that_is_evicted_before_its_guard_exists_is_no_guard() {
    let rig = rig();
    rig.engine.hold_back_claim_replies.store(true, Ordering::Relaxed);
    let mutex = rig.client.mutex("x").unwrap();
    let taking = tokio::spawn(async move { mutex.acquire().await });
    settle().await;
    let claim = rig.rival.show("x").await.unwrap().holders[0].claim;
    rig.rival.evict("x", claim, "too late").await.unwrap();
    settle().await;
    rig.engine.permits.add_permits(1);
    let error = taking.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("too late"), "{error}");
}

#[tokio::test]
async fn a_permanent_error_is_not_retried_and_keeps_its_doubt() {
    let rig = rig();
    rig.engine.lose_next_claim_reply.store(true, Ordering::Relaxed);
    let mutex = rig.client.mutex("x").unwrap();
    let taking = tokio::spawn(async move { mutex.try_acquire().await });
    settle().await;
    rig.engine.unreachable.store(true, Ordering::Relaxed);
    rig.pass(TTL * 2).await;
    let error = taking.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
}
