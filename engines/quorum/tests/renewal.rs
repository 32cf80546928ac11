//! A renewal that was under way when the claim was granted.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use palisade_core::{Claimed, Clock, Engine, Renewed, Waited};

/// A renewal that was sent while the claim waited (one node is enough) and answered after it was granted
/// raises the end of the grant to what that one node honours. The claim is granted after two seconds: renewals
/// are sent, and answered, before, while and after it is.
#[tokio::test(start_paused = true)]
async fn a_renewal_from_the_queue_does_not_extend_a_grant_beyond_what_a_majority_honours() {
    for sent_at in (1_500..2_300).step_by(10) {
        for answered_after in [0, 30, 180] {
            renewed_around_its_grant(Duration::from_millis(sent_at), Duration::from_millis(answered_after))
                .await;
        }
    }
}

async fn renewed_around_its_grant(sent_at: Duration, answered_after: Duration) {
    let servers = servers(3);
    let ttl = Duration::from_secs(6);
    for (server, secs) in [(1, 2), (2, 3)] {
        let other = (servers[server].node().open)().await.unwrap();
        let taken = Arc::new(claim("a", Duration::from_secs(secs)));
        assert!(matches!(other.claim(&taken).await.unwrap(), Claimed::Granted(_)));
    }
    let engine = Arc::new(open(&servers).await);
    let began = RuntimeClock.now();
    let waiter = Arc::new(claim("a", ttl));
    let first = engine.claim(&waiter).await.unwrap();
    assert!(matches!(first, Claimed::Queued(_)), "{first:?}");
    let (engine2, waiter2) = (Arc::clone(&engine), Arc::clone(&waiter));
    let waiting = tokio::spawn(async move { engine2.wait(&waiter2).await.unwrap() });
    RuntimeClock.sleep_until(began + sent_at).await;
    // Renewals do not reach two of three nodes, and the third takes a while to say so.
    servers[1].silent.store(true, Ordering::Relaxed);
    servers[2].silent.store(true, Ordering::Relaxed);
    servers[0].delay.store(answered_after.as_micros() as u64, Ordering::Relaxed);
    let renewed = engine.renew(std::slice::from_ref(&waiter)).await;
    servers[0].delay.store(0, Ordering::Relaxed);
    let Waited::Granted(granted) = waiting.await.unwrap() else { panic!("it was not granted") };
    let until = match renewed.as_deref() {
        Ok([Renewed::Valid { until }]) => granted.valid_until.max(*until),
        // Once it was granted, one node of three renews nothing.
        other if sent_at + answered_after < Duration::from_secs(2) => panic!("{other:?}"),
        _ => granted.valid_until,
    };
    servers[1].silent.store(false, Ordering::Relaxed);
    servers[2].silent.store(false, Ordering::Relaxed);
    // As soon as two nodes do not honour it any more.
    let rival = open(&servers).await;
    acquire(&rival, &long("a")).await;
    let left = until.saturating_since(RuntimeClock.now());
    assert!(
        left <= engine.profile().drift.margin(ttl),
        "renewed after {sent_at:?}, answered after {answered_after:?}: a rival was granted while the first believes to hold for another {left:?}"
    );
}
