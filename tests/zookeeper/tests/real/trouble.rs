//! Leaders that end, servers that stop, replies that are lost, and a crowd.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use palisade::{BootInstant, Client, ClientBuilder, Clock, Condition, MutexGuard, SystemClock};
use palisade_testkit::proxy::{Proxy, Weather};
use palisade_testkit::servers::{ZooKeeperServer, ZooKeeperSet};
use palisade_testkit::trial::{holders, outlive};
use palisade_zookeeper_trials::{bare, client, nodes, one, soon, three, until, url};

/// Servers that have lost their leader and found another within half a TTL, and holders from before.
async fn elected() -> Result<(ZooKeeperSet, Vec<Client>, Vec<MutexGuard>, BootInstant)> {
    const TTL: u64 = 3;
    // On a busy machine one may take longer, which tells nothing.
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        let set = three().await?;
        let (clients, guards) = holders(&url(&set), TTL).await?;
        let leader = set.leader().await.context("nobody leads")?;
        set.servers[leader].kill().await?;
        let killed = SystemClock.now();
        let other = &clients[0];
        until("the others decide again", || async {
            Ok(other.register("probe")?.write("x", Condition::always()).await.is_ok())
        })
        .await?;
        if SystemClock.now() < killed + Duration::from_secs(TTL) / 2 {
            return Ok((set, clients, guards, killed));
        }
    }
    bail!("none of {TRIES} elections was shorter than half of {TTL} s")
}

#[tokio::test]
async fn no_hold_is_lost_when_the_leader_is_killed() -> Result<()> {
    let (_set, _clients, guards, killed) = elected().await?;
    outlive(&guards, killed).await?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_leaves_a_server_that_is_stopped() -> Result<()> {
    let set = three().await?;
    let leader = set.leader().await.context("nobody leads")?;
    let (_clients, guards) = holders(&url(&set), 6).await?;
    // Some of the clients talk to this one, which does not lead.
    let follower = &set.servers[(leader + 1) % 3];
    follower.stop()?;
    outlive(&guards, SystemClock.now()).await?;
    for guard in guards {
        guard.release().await?;
    }
    follower.go_on()
}

#[tokio::test]
async fn a_holder_without_a_majority_is_told_before_its_time_is_up() -> Result<()> {
    let set = three().await?;
    let client = client(&url(&set)).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    set.servers[0].stop()?;
    set.servers[1].stop()?;
    soon("the holder is told", guard.lost()).await?;
    ensure!(!guard.is_valid(), "it calls itself valid");
    set.servers[0].go_on()?;
    set.servers[1].go_on()?;
    soon("the next grant", client.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_of_all_keeps_what_is_held() -> Result<()> {
    let set = three().await?;
    let client = ClientBuilder::default().ttl(Duration::from_secs(30)).connect(&url(&set)).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    for server in &set.servers {
        server.kill().await?;
    }
    ZooKeeperServer::start_with_others(&set.servers).await?;
    until("the servers decide again", || async { Ok(client.show("orders").await.is_ok()) }).await?;
    ensure!(guard.is_valid(), "it was lost");
    let other = palisade_zookeeper_trials::client(&url(&set)).await?;
    ensure!(other.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    guard.release().await?;
    Ok(())
}

/// The server makes the node, and the connection is lost before its answer comes.
#[tokio::test]
async fn a_lost_reply_leaves_no_orphan() -> Result<()> {
    let set = one().await?;
    let proxy = Proxy::start(set.servers[0].address()).await?;
    // The session of the default TTL: no other connection is made by the claim.
    let client = ClientBuilder::default().connect(&format!("zk://{}", proxy.address())).await?;
    let lock = client.mutex("orders")?;
    lock.acquire().await?.release().await?;
    let other = bare(&set).await?;
    for round in 0..10 {
        proxy.set(Weather::CutAfterForwarding);
        let guard = soon("the grant", lock.acquire()).await??;
        ensure!(
            nodes(&other, "orders").await?.len() == 1,
            "round {round}: {:?}",
            nodes(&other, "orders").await?
        );
        proxy.set(Weather::CutAfterForwarding);
        guard.release().await?;
        until("nothing is left", || async { Ok(nodes(&other, "orders").await?.is_empty()) }).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_thousand_waiters_are_woken_one_at_a_time() -> Result<()> {
    const WAITERS: usize = 1000;
    let set = one().await?;
    let client = Arc::new(ClientBuilder::default().ttl(Duration::from_mins(1)).connect(&url(&set)).await?);
    let guard = client.mutex("orders")?.acquire().await?;
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let guard = client.mutex("orders")?.acquire().await?;
                let token = guard.token();
                guard.release().await?;
                anyhow::Ok(token)
            })
        })
        .collect();
    until("all wait", || async { Ok(client.show("orders").await?.waiters.len() == WAITERS) }).await?;
    // Each watches the one ahead, and nobody else.
    until("all watch", || async {
        let said = set.servers[0].say("wchs").await?;
        Ok(said.contains(&format!("watching {} paths", WAITERS + 1)))
    })
    .await?;
    let before = set.servers[0].requests().await?;
    guard.release().await?;
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(tokio::time::timeout(Duration::from_mins(1), task).await???);
    }
    tokens.sort_unstable();
    tokens.dedup();
    ensure!(tokens.len() == WAITERS, "two have one token");
    // A look and a release for each, and some pings meanwhile: nobody else was woken.
    let requests = set.servers[0].requests().await? - before;
    ensure!(requests < 3 * WAITERS as u64, "{requests} requests for {WAITERS} hand-overs");
    Ok(())
}
