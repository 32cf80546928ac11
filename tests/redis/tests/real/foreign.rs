//! Locks of clients that know nothing of us.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use palisade_core::{Claim, Claimed, Engine as _, Mode, Name, Owner, Ttl, Waited};
use palisade_redis::{RedisConfig, RedisEngine};
use palisade_redis_trials::{client, server, soon, until, url};
use palisade_testkit::servers::RedisServer;

const LOCK: &str = "orders";

/// What redis-py does, without a TTL, as is its default.
async fn take(server: &RedisServer) -> Result<()> {
    ensure!(server.ask(&["SET", LOCK, "their-token", "NX"]).await?.text() == "OK", "it is free");
    Ok(())
}

#[tokio::test]
async fn a_foreign_lock_without_a_ttl_keeps_ours_waiting_and_its_end_is_told() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let mutex = client.mutex(LOCK)?;
    take(&server).await?;
    ensure!(mutex.try_acquire().await?.is_none(), "it is held by another");
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await.map(|guard| (guard, Instant::now())) }
    });
    // The head of the queue is told only if the server tracks the key for it.
    until("the server tracks the key", || async {
        let stats = server.ask(&["INFO", "stats"]).await?;
        Ok(stats.field("tracking_total_keys").is_some_and(|keys| keys != "0"))
    })
    .await?;
    let freed = Instant::now();
    server.ask(&["DEL", LOCK]).await?;
    let (guard, told) = soon("the lock passes on", waiting).await???;
    let after = told.saturating_duration_since(freed);
    ensure!(after < Duration::from_secs(1), "told after {after:?}: nobody polls that slowly");
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_foreign_lock_that_expires_passes_on() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    server.ask(&["SET", LOCK, "their-token", "NX", "PX", "300"]).await?;
    let guard = soon("it expires", client.mutex(LOCK)?.acquire()).await??;
    ensure!(guard.is_valid(), "it is ours");
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn our_lock_is_the_key_that_others_look_at() -> Result<()> {
    let server = server().await?;
    let client = client(&format!("{}?key=locks:%7Bname%7D", url(&server))).await?;
    let guard = client.mutex(LOCK)?.acquire().await?;
    let theirs = server.ask(&["SET", "locks:orders", "their-token", "NX", "PX", "1000"]).await?;
    ensure!(theirs.text() != "OK", "ours excludes theirs");
    let left: i64 = server.ask(&["PTTL", "locks:orders"]).await?.text().parse()?;
    ensure!((1..=2000).contains(&left), "it has a TTL: {left}");
    guard.release().await?;
    let theirs = server.ask(&["SET", "locks:orders", "their-token", "NX", "PX", "1000"]).await?;
    ensure!(theirs.text() == "OK", "it is free again");
    Ok(())
}

#[tokio::test]
async fn readers_and_permits_exclude_foreign_clients_too() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let reader = client.rw_lock("shared")?.read().await?;
    let permit = client.semaphore("slots", 2)?.acquire().await?;
    for key in ["shared", "slots"] {
        let theirs = server.ask(&["SET", key, "their-token", "NX", "PX", "1000"]).await?;
        ensure!(theirs.text() != "OK", "{key} is taken");
    }
    reader.release().await?;
    permit.release().await?;
    for key in ["shared", "slots"] {
        ensure!(server.ask(&["EXISTS", key]).await?.text() == "0", "{key} is free");
    }
    Ok(())
}

#[tokio::test]
async fn a_foreign_holder_is_shown_by_name_only_and_can_be_evicted() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    take(&server).await?;
    let view = client.show(LOCK).await?;
    ensure!(view.holders.len() == 1, "{view:?}");
    let label = view.holders[0].owner.label.clone().unwrap_or_default();
    ensure!(label.contains("their-token"), "{label}");
    ensure!(client.list("").await?.is_empty(), "a listing would have to show every key there is");
    client.evict(LOCK, view.holders[0].claim, "it hangs").await?;
    ensure!(server.ask(&["EXISTS", LOCK]).await?.text() == "0", "it is gone");
    Ok(())
}

#[tokio::test]
async fn who_barges_in_is_tolerated() -> Result<()> {
    let server = Arc::new(server().await?);
    let client = client(&url(&server)).await?;
    let mutex = client.mutex(LOCK)?;
    let guard = mutex.acquire().await?;
    // ShedLock deletes whatever there is, and then somebody else comes in.
    server.ask(&["DEL", LOCK]).await?;
    take(&server).await?;
    soon("the robbed holder is told", guard.lost()).await?;
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    until("it waits", || async { Ok(client.show(LOCK).await?.waiters.len() == 1) }).await?;
    ensure!(server.ask(&["GET", LOCK]).await?.text() == "their-token", "theirs is untouched");
    server.ask(&["DEL", LOCK]).await?;
    soon("it passes on", waiting).await???.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_foreign_lock_that_is_gone_before_we_listen_keeps_nobody_waiting() -> Result<()> {
    let server = server().await?;
    server.ask(&["SET", LOCK, "their-token", "PX", "60000"]).await?;
    let engine = RedisEngine::open(RedisConfig::parse(&url(&server))?).await?;
    let owner = Arc::new(Owner::this_process());
    let claim = Arc::new(Claim::new(Name::new(LOCK)?, Mode::Exclusive, Ttl::default(), owner));
    ensure!(matches!(engine.claim(&claim).await?, Claimed::Queued(_)), "it is taken");
    server.ask(&["DEL", LOCK]).await?;
    let waited = soon("the turn", engine.wait(&claim)).await??;
    ensure!(matches!(waited, Waited::Granted(_)), "{waited:?}");
    Ok(())
}
