//! Sentinels that make another server the primary while a lock is held.

use anyhow::{Context, Result, ensure};
use palisade_redis_trials::{client, soon, until};
use palisade_testkit::servers::{RedisOptions, SentinelSet};

async fn set() -> Result<(SentinelSet, String)> {
    let set = SentinelSet::start(RedisOptions::default()).await?;
    let hosts: Vec<String> = set.addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+sentinel://{}/mymaster", hosts.join(","));
    Ok((set, url))
}

#[tokio::test]
async fn a_failover_that_loses_the_lock_leaves_the_old_holder_fenced_off() -> Result<()> {
    let (set, url) = set().await?;
    let (one, two) = (client(&url).await?, client(&url).await?);
    let register = one.register("balance")?;
    let warm = one.mutex("orders")?.acquire().await?;
    register.fenced(&warm).await?.write("first").await?;
    warm.release().await?;
    set.replicated().await?;
    // The replica hears of nothing from here on: what is granted now dies with the primary.
    let primary = set.primary().await?;
    let replica =
        set.servers.iter().find(|server| server.address() != primary.address()).context("a replica")?;
    replica.stop()?;
    primary.ask(&["CLIENT", "KILL", "TYPE", "replica"]).await?;
    let robbed = one.mutex("orders")?.acquire().await?;
    let late = register.fenced(&robbed).await?;
    let old = primary.address();
    primary.kill().await?;
    replica.go_on()?;
    set.primary_after(old).await?;
    let next = soon("the new primary grants it", two.mutex("orders")?.acquire()).await??;
    ensure!(next.token() > robbed.token(), "{} came after {}", next.token(), robbed.token());
    two.register("balance")?.fenced(&next).await?.write("new").await?;
    until("the old holder's write is refused, not lost", || async {
        match late.write("old").await {
            Ok(version) => anyhow::bail!("it was written as {version}"),
            Err(palisade::Stale::Fenced { .. }) => Ok(true),
            Err(_) => Ok(false),
        }
    })
    .await?;
    soon("the old holder is told", robbed.lost()).await?;
    ensure!(register.read().await?.value.as_deref() == Some(b"new"), "what is newer stays");
    Ok(())
}

#[tokio::test]
async fn a_lock_that_was_replicated_outlives_a_failover() -> Result<()> {
    let (set, url) = set().await?;
    let client = client(&format!("{url}?ttl=10s")).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    set.replicated().await?;
    set.fail_over().await?;
    until("the new primary answers", || async { Ok(client.show("orders").await.is_ok()) }).await?;
    let other = palisade_redis_trials::client(&url).await?;
    ensure!(other.mutex("orders")?.try_acquire().await?.is_none(), "it is still held");
    ensure!(guard.is_valid(), "it is still ours");
    guard.release().await?;
    Ok(())
}
