//! Trouble while many work: scripts flushed, connections killed, the server stopped for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use palisade_redis_trials::{client, server, soon, until, url};
use palisade_testkit::servers::RedisServer;

/// What is inside while a lock is held. Two at once are one too many.
#[derive(Default)]
struct Inside {
    taken: AtomicBool,
    turns: AtomicU64,
    overlaps: AtomicU64,
}

/// Several clients take turns until `trouble` is over; nobody may meet anybody, and all must go on.
async fn under_load<F: Future<Output = Result<()>>>(server: &RedisServer, trouble: F) -> Result<()> {
    let inside = Arc::new(Inside::default());
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mutex = client(&url(server)).await?.mutex("orders")?;
        let (inside, over) = (Arc::clone(&inside), Arc::clone(&over));
        tasks.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                // A connection that is killed fails calls: asking again is all it takes.
                let Ok(guard) = mutex.acquire().await else { continue };
                if inside.taken.swap(true, Ordering::SeqCst) {
                    inside.overlaps.fetch_add(1, Ordering::Relaxed);
                }
                tokio::task::yield_now().await;
                inside.taken.store(false, Ordering::SeqCst);
                inside.turns.fetch_add(1, Ordering::Relaxed);
                let _ = guard.release().await;
            }
        }));
    }
    trouble.await?;
    let so_far = inside.turns.load(Ordering::Relaxed);
    let enough = || async { Ok(inside.turns.load(Ordering::Relaxed) > so_far + 20) };
    until("turns go on after the trouble", enough).await?;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        soon("everyone comes to an end", task).await??;
    }
    ensure!(inside.overlaps.load(Ordering::Relaxed) == 0, "two were inside at once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_are_brought_again() -> Result<()> {
    let server = server().await?;
    let trouble = async {
        for _ in 0..40 {
            server.ask(&["SCRIPT", "FLUSH"]).await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    under_load(&server, trouble).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_are_made_again() -> Result<()> {
    let server = server().await?;
    let trouble = async {
        for _ in 0..20 {
            server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
            server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        Ok(())
    };
    under_load(&server, trouble).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_for_a_while_costs_no_lock() -> Result<()> {
    let server = server().await?;
    let trouble = async {
        for _ in 0..3 {
            server.stop()?;
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.go_on()?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    under_load(&server, trouble).await
}

#[tokio::test]
async fn a_waiter_outlives_its_connection() -> Result<()> {
    let server = server().await?;
    let (holder, waiter) = (client(&url(&server)).await?, client(&url(&server)).await?);
    let guard = holder.mutex("orders")?.acquire().await?;
    let waiting = tokio::spawn({
        let mutex = waiter.mutex("orders")?;
        async move { mutex.acquire().await }
    });
    until("it waits", || async { Ok(holder.show("orders").await?.waiters.len() == 1) }).await?;
    server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
    until("both are back", || async { Ok(holder.show("orders").await.is_ok()) }).await?;
    guard.release().await?;
    soon("it passes on", waiting).await???.release().await?;
    Ok(())
}

#[tokio::test]
async fn one_connection_and_one_subscription_however_many_wait() -> Result<()> {
    let server = server().await?;
    let (holder, waiter) = (client(&url(&server)).await?, client(&url(&server)).await?);
    let mut guards = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..50 {
        let name = format!("lock-{number}");
        guards.push(holder.mutex(&name)?.acquire().await?);
        let mutex = waiter.mutex(&name)?;
        waiting.push(tokio::spawn(async move { mutex.acquire().await }));
    }
    until("all wait", || async {
        Ok(holder.list("lock-").await?.iter().filter(|view| view.waiters.len() == 1).count() == 50)
    })
    .await?;
    let info = server.ask(&["INFO", "clients"]).await?;
    // Two clients of ours, and the one that asks.
    ensure!(info.field("connected_clients") == Some("3"), "{info}");
    for guard in guards {
        guard.release().await?;
    }
    for one in waiting {
        soon("it passes on", one).await???.release().await?;
    }
    Ok(())
}
