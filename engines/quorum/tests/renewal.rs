//! A renewal that was under way when the claim was granted.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use palisade_core::{Claimed, Clock, Engine, Renewed, SystemClock, Waited};

/// A renewal that was sent while the claim waited (one node is enough) and answered after it was granted
/// raises the end of the grant to what that one node honours.
#[tokio::test]
async fn a_renewal_from_the_queue_does_not_extend_a_grant_beyond_what_a_majority_honours() {
    let servers = servers(3);
    let ttl = Duration::from_secs(6);
    for (server, secs) in [(1, 2), (2, 3)] {
        let other = (servers[server].node().open)().await.unwrap();
        let taken = Arc::new(claim("a", Duration::from_secs(secs)));
        assert!(matches!(other.claim(&taken).await.unwrap(), Claimed::Granted(_)));
    }
    let engine = Arc::new(open(&servers).await);
    let began = SystemClock.now();
    let waiter = Arc::new(claim("a", ttl));
    let first = engine.claim(&waiter).await.unwrap();
    assert!(matches!(first, Claimed::Queued(_)), "{first:?}");
    let (engine2, waiter2) = (Arc::clone(&engine), Arc::clone(&waiter));
    let waiting = tokio::spawn(async move { engine2.wait(&waiter2).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(1850)).await;
    // Renewals do not reach two of three nodes, and the third takes a while to say so.
    servers[1].silent.store(true, Ordering::Relaxed);
    servers[2].silent.store(true, Ordering::Relaxed);
    servers[0].delay.store(180_000, Ordering::Relaxed);
    let renewed = engine.renew(std::slice::from_ref(&waiter)).await.unwrap();
    servers[0].delay.store(0, Ordering::Relaxed);
    assert!(matches!(waiting.await.unwrap(), Waited::Granted(_)));
    let Renewed::Valid { until } = renewed[0] else { panic!("{renewed:?}") };
    // Past what the two others honour.
    SystemClock.sleep_until(began + ttl + Duration::from_millis(100)).await;
    servers[1].silent.store(false, Ordering::Relaxed);
    servers[2].silent.store(false, Ordering::Relaxed);
    let rival = open(&servers).await;
    let second = rival.claim(&Arc::new(claim("a", ttl).no_wait())).await.unwrap();
    let left = until.saturating_since(SystemClock.now());
    let margin = engine.profile().drift.margin(ttl);
    assert!(
        !(matches!(second, Claimed::Granted(_)) && left > margin),
        "a rival was granted while the first believes to hold for another {left:?}"
    );
}
