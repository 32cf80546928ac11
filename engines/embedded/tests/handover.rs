//! Two engine values on one folder, as two processes would have them.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{claim, claim_for, exclusive, granted, name, open, take, waited, within};
use futures::StreamExt;
use palisade_core::{
    Change, Changed, Claimed, Engine, Evicted, GoneReason, Mode, Page, Renewed, Selector, Signal, Waited,
    WatchEvent, Withdrawn,
};
use palisade_embedded::{EmbeddedConfig, EmbeddedEngine, Sync};

#[tokio::test]
async fn waiters_of_two_sessions_are_served_in_the_order_of_arrival() {
    let folder = tempfile::tempdir().unwrap();
    let engines = [Arc::new(open(folder.path()).await), Arc::new(open(folder.path()).await)];
    let (held, first) = take(&*engines[0], "r").await;
    let mut waiting = Vec::new();
    let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..10 {
        let engine = Arc::clone(&engines[number % 2]);
        let queued = exclusive("r");
        let Claimed::Queued(place) = engine.claim(&queued).await.unwrap() else { panic!("not queued") };
        assert_eq!(place.ahead, u32::try_from(number).unwrap());
        let done = done.clone();
        waiting.push(tokio::spawn(async move {
            let grant = waited(engine.wait(&queued).await.unwrap());
            done.send((number, grant.token)).unwrap();
            assert_eq!(engine.withdraw(&[queued]).await.unwrap(), [Withdrawn::Released]);
        }));
    }
    assert_eq!(engines[0].withdraw(&[held]).await.unwrap(), [Withdrawn::Released]);
    let mut last = first.token;
    for expected in 0..10 {
        let (number, token) = within("a hand-over", order.recv()).await.unwrap();
        assert_eq!(number, expected);
        assert!(token > last);
        last = token;
    }
    for waiter in waiting {
        within("the end", waiter).await.unwrap();
    }
}

#[tokio::test]
async fn dropping_an_engine_passes_its_claims_on_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    take(&one, "r").await;
    let queued = exclusive("r");
    assert!(matches!(two.claim(&queued).await.unwrap(), Claimed::Queued(_)));
    let waiting = async { waited(two.wait(&queued).await.unwrap()) };
    let (_, ()) = within("the hand-over", futures::future::join(waiting, async { drop(one) })).await;
}

#[tokio::test]
async fn a_claim_that_will_not_wait_reaps_a_dead_holder() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    take(&one, "r").await;
    let busy = Arc::new(claim("r", Mode::Exclusive).no_wait());
    let Claimed::Busy(busy_with) = two.claim(&busy).await.unwrap() else { panic!("not busy") };
    assert_eq!(busy_with.holders.len(), 1);
    drop(one);
    granted(two.claim(&busy).await.unwrap());
}

#[tokio::test]
async fn an_evicted_holder_is_told_with_the_reason_and_the_next_comes_in() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    let mut signals = one.signals().subscribe();
    let (held, first) = take(&one, "r").await;
    let queued = exclusive("r");
    two.claim(&queued).await.unwrap();
    assert_eq!(two.evict(&name("r"), held.id, "maintenance").await.unwrap(), Evicted::Done);
    let reason = GoneReason::Evicted { reason: "maintenance".to_owned() };
    let signal = within("the signal", signals.recv()).await.unwrap();
    assert_eq!(signal, Signal::Gone { claim: held.id, reason: reason.clone() });
    assert!(waited(two.wait(&queued).await.unwrap()).token > first.token);
    assert_eq!(one.renew(&[held]).await.unwrap(), [Renewed::Gone(reason)]);
}

#[tokio::test]
async fn slots_pass_on_when_any_holder_dies_not_only_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let mut engines = Vec::new();
    for _ in 0..4 {
        engines.push(open(folder.path()).await);
    }
    let slot = || Arc::new(claim("r", Mode::Slot { of: 2 }));
    granted(engines[0].claim(&slot()).await.unwrap());
    let second = slot();
    granted(engines[1].claim(&second).await.unwrap());
    let (third, fourth) = (slot(), slot());
    assert!(matches!(engines[2].claim(&third).await.unwrap(), Claimed::Queued(_)));
    assert!(matches!(engines[3].claim(&fourth).await.unwrap(), Claimed::Queued(_)));
    let last = engines.pop().unwrap();
    let waiting = tokio::spawn(async move { waited(last.wait(&fourth).await.unwrap()) });
    // The third comes in; the fourth is then first in line and must watch the first holder too.
    engines[1].withdraw(&[second]).await.unwrap();
    waited(engines[2].wait(&third).await.unwrap());
    drop(engines.remove(0));
    within("the fourth", waiting).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_is_not_renewed_expires_and_passes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    let short = Arc::new(claim_for("r", Mode::Exclusive, Duration::from_millis(100)));
    granted(one.claim(&short).await.unwrap());
    let queued = exclusive("r");
    two.claim(&queued).await.unwrap();
    waited(within("the hand-over", two.wait(&queued)).await.unwrap());
    assert_eq!(one.renew(&[Arc::clone(&short)]).await.unwrap(), [Renewed::Gone(GoneReason::Expired)]);
    assert_eq!(one.withdraw(&[short]).await.unwrap(), [Withdrawn::AlreadyGone]);
}

#[tokio::test]
async fn a_withdrawn_waiter_is_told_and_its_successor_watches_on() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    take(&one, "r").await;
    let (gone, next) = (exclusive("r"), exclusive("r"));
    two.claim(&gone).await.unwrap();
    two.claim(&next).await.unwrap();
    let waits = async { two.wait(&gone).await.unwrap() };
    let leaves = async { two.withdraw(&[Arc::clone(&gone)]).await.unwrap() };
    let (waited_for, left) = within("the leaving", futures::future::join(waits, leaves)).await;
    assert_eq!(waited_for, Waited::Gone(GoneReason::Unknown));
    assert_eq!(left, [Withdrawn::LeftQueue]);
    let (_, ()) = within(
        "the hand-over",
        futures::future::join(async { waited(two.wait(&next).await.unwrap()) }, async { drop(one) }),
    )
    .await;
}

#[tokio::test]
async fn closing_passes_on_and_refuses_what_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    take(&one, "r").await;
    let queued = exclusive("r");
    two.claim(&queued).await.unwrap();
    one.close().await;
    one.close().await;
    waited(within("the hand-over", two.wait(&queued)).await.unwrap());
    let refused = one.claim(&exclusive("r")).await.unwrap_err();
    assert_eq!(refused.kind(), palisade_core::ErrorKind::Closed);
    two.close().await;
    assert_eq!(std::fs::read_dir(folder.path().join("sessions")).unwrap().count(), 0);
}

#[tokio::test]
async fn changes_of_another_session_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    let mut changes = two.watch(&Selector::everything("")).await.unwrap();
    let (held, grant) = take(&one, "r").await;
    let Some(Ok(WatchEvent::Resource(view))) = within("the claim", changes.next()).await else { panic!() };
    assert_eq!(view.holders[0].token, Some(grant.token));
    assert_eq!(one.change(&held, &Change::Value(Some("10.0.0.7".into()))).await.unwrap(), Changed::Done);
    let Some(Ok(WatchEvent::Resource(view))) = within("the value", changes.next()).await else { panic!() };
    assert_eq!(view.holders[0].value.as_deref(), Some(&b"10.0.0.7"[..]));
    one.withdraw(&[held]).await.unwrap();
    let Some(Ok(WatchEvent::Resource(view))) = within("the release", changes.next()).await else { panic!() };
    assert!(view.holders.is_empty());
    one.write(&name("x"), "1".into(), &palisade_core::Condition::always(), None).await.unwrap();
    let Some(Ok(WatchEvent::Register(written, entry))) = within("the write", changes.next()).await else {
        panic!()
    };
    assert_eq!((written, entry.value.as_deref()), (name("x"), Some(&b"1"[..])));
    assert!(one.inspect(&Selector::resources(""), &Page::default()).await.unwrap().resources.is_empty());
}

#[tokio::test]
async fn more_wake_ups_at_once_than_a_socket_holds_are_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    let (mut held, mut queued) = (Vec::new(), Vec::new());
    let mut signals = two.signals().subscribe();
    for number in 0..100 {
        let resource = format!("r{number}");
        held.push(take(&one, &resource).await.0);
        let claim = exclusive(&resource);
        assert!(matches!(two.claim(&claim).await.unwrap(), Claimed::Queued(_)));
        queued.push(claim);
    }
    let waiting = futures::future::join_all(queued.iter().map(|claim| two.wait(claim)));
    // One batch, so that the other side hears nothing until all is said.
    let (granted, _) = within("a hundred turns", futures::future::join(waiting, one.withdraw(&held))).await;
    for waiter in granted {
        waited(waiter.unwrap());
    }
    // The same for those who lose what they hold.
    for claim in &queued {
        one.evict(&claim.resource, claim.id, "all out").await.unwrap();
    }
    for _ in &queued {
        let signal = within("a signal", signals.recv()).await.unwrap();
        assert!(matches!(signal, Signal::Gone { reason: GoneReason::Evicted { .. }, .. }), "{signal:?}");
    }
}

#[tokio::test]
async fn a_grant_to_one_whose_socket_was_deleted_is_not_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    let (held, _) = take(&one, "r").await;
    let queued = exclusive("r");
    assert!(matches!(two.claim(&queued).await.unwrap(), Claimed::Queued(_)));
    for file in std::fs::read_dir(folder.path().join("sessions")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "sock") {
            std::fs::remove_file(path).unwrap();
        }
    }
    one.withdraw(&[held]).await.unwrap();
    let end = std::time::Instant::now() + Duration::from_millis(300);
    while std::time::Instant::now() < end {
        let renewed = two.renew(std::slice::from_ref(&queued)).await.unwrap();
        assert!(matches!(renewed[..], [Renewed::Valid { .. }]), "{renewed:?}");
        tokio::task::yield_now().await;
    }
    waited(two.wait(&queued).await.unwrap());
}

fn rows(folder: &std::path::Path) -> u32 {
    let db = rusqlite::Connection::open(folder.join("claims.db")).unwrap();
    db.query_row("SELECT count(*) FROM claim", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn claims_that_nobody_asks_for_again_do_not_outlive_the_next_opening() {
    let folder = tempfile::tempdir().unwrap();
    let one = open(folder.path()).await;
    for number in 0..5 {
        take(&one, &format!("r{number}")).await;
    }
    drop(one);
    assert_eq!(rows(folder.path()), 5);
    open(folder.path()).await.close().await;
    assert_eq!(rows(folder.path()), 0);
    assert_eq!(std::fs::read_dir(folder.path().join("sessions")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_session_that_could_not_end_in_order_ends_as_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(folder.path()).call_timeout(Duration::from_millis(200));
    let (one, two) = (EmbeddedEngine::open(config).await.unwrap(), open(folder.path()).await);
    take(&one, "r").await;
    take(&one, "q").await;
    let queued = exclusive("r");
    assert!(matches!(two.claim(&queued).await.unwrap(), Claimed::Queued(_)));
    let stuck = std::fs::File::open(folder.path().join("write.lock")).unwrap();
    rustix::fs::flock(&stuck, rustix::fs::FlockOperation::LockExclusive).unwrap();
    within("closing", one.close()).await;
    assert!(std::fs::read_dir(folder.path().join("sessions")).unwrap().count() > 2, "nobody would clean up");
    drop(stuck);
    // Although the engine value and its descriptor are still there.
    waited(within("the hand-over", two.wait(&queued)).await.unwrap());
    drop(one);
    assert_eq!(rows(folder.path()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_runs_into_the_closing_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..200 {
        let engine = Arc::new(open(folder.path()).await);
        let busy = Arc::clone(&engine);
        let claims = tokio::spawn(async move {
            while busy.claim(&exclusive("r")).await.is_ok() {
                // A claim that is decided at once does not pause: the closing could wait behind this
                // task for as long as it runs, on the same thread of the runtime.
                tokio::task::yield_now().await;
            }
        });
        let closes = tokio::spawn(async move { engine.close().await });
        within("the claims", claims).await.unwrap();
        within("the closing", closes).await.unwrap();
        assert_eq!(rows(folder.path()), 0);
    }
}

#[tokio::test]
async fn a_floor_lifts_the_token_also_of_one_who_waited_and_of_one_who_asks_again() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let (held, _) = take(&engine, "r").await;
    let mut floored = claim("r", Mode::Exclusive);
    floored.token_floor = palisade_core::Token::new(1_000_000);
    let queued = Arc::new(floored.clone());
    engine.claim(&queued).await.unwrap();
    engine.withdraw(&[held]).await.unwrap();
    let first = waited(engine.wait(&queued).await.unwrap());
    assert!(first.token.get() > 1_000_000);
    floored.token_floor = palisade_core::Token::new(2_000_000);
    let again = granted(engine.claim(&Arc::new(floored)).await.unwrap());
    assert!(again.token.get() > 2_000_000);
    engine.withdraw(&[queued]).await.unwrap();
    assert!(take(&engine, "r").await.1.token > again.token);
}

#[tokio::test]
async fn readers_come_in_together_and_a_writer_is_not_overtaken() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    let shared = || Arc::new(claim("r", Mode::Shared));
    let (first, second, late) = (shared(), shared(), shared());
    granted(one.claim(&first).await.unwrap());
    granted(two.claim(&second).await.unwrap());
    let writer = exclusive("r");
    assert!(matches!(one.claim(&writer).await.unwrap(), Claimed::Queued(_)));
    assert!(matches!(two.claim(&late).await.unwrap(), Claimed::Queued(_)));
    let no_wait = Arc::new(claim("r", Mode::Shared).no_wait());
    assert!(matches!(two.claim(&no_wait).await.unwrap(), Claimed::Busy(_)));
    // Both readers go; the writer comes in, and after its downgrade the late reader.
    one.withdraw(&[first]).await.unwrap();
    two.withdraw(&[second]).await.unwrap();
    waited(within("the writer", one.wait(&writer)).await.unwrap());
    assert_eq!(one.change(&writer, &Change::Mode(Mode::Shared)).await.unwrap(), Changed::Done);
    waited(within("the late reader", two.wait(&late)).await.unwrap());
}

#[tokio::test]
async fn claims_that_wait_for_the_disk_keep_the_same_order() {
    let folder = tempfile::tempdir().unwrap();
    let full = || EmbeddedEngine::open(EmbeddedConfig::new(folder.path()).sync(Sync::Full));
    let (one, two) = (full().await.unwrap(), full().await.unwrap());
    let (held, _) = take(&one, "r").await;
    let queued = exclusive("r");
    assert!(matches!(two.claim(&queued).await.unwrap(), Claimed::Queued(_)));
    let release = one.withdraw(std::slice::from_ref(&held));
    let (waiter, released) = within("the hand-over", futures::future::join(two.wait(&queued), release)).await;
    waited(waiter.unwrap());
    assert_eq!(released.unwrap(), [Withdrawn::Released]);
    // A claim whose future was dropped is withdrawn by one that was asked for later.
    let dropped = exclusive("q");
    assert!(futures::poll!(std::pin::pin!(one.claim(&dropped))).is_pending());
    one.withdraw(&[dropped]).await.unwrap();
    take(&two, "q").await;
}
