//! Servers that are cut off from each other, while their clients are not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::{Client, Clock, Condition, SystemClock};
use palisade_testkit::proxy::Weather;
use palisade_testkit::servers::ZooKeeperSet;
use palisade_testkit::trial::{holders, outlive};
use palisade_zookeeper_trials::{client, soon, three, until, url};

async fn at(set: &ZooKeeperSet, server: usize) -> Result<Client> {
    client(&format!("zk://{}", set.servers[server].address())).await
}

/// A server that is cut off from its leader answers pings for a while yet, and its leader ends the sessions
/// of its clients meanwhile.
#[tokio::test]
async fn a_holder_behind_a_server_without_its_leader_is_told_first() -> Result<()> {
    let set = three().await?;
    let leader = set.leader().await.context("nobody leads")?;
    let follower = (leader + 1) % 3;
    for silent in [true, false] {
        let (holder, other) = (at(&set, follower).await?, at(&set, leader).await?);
        let guard = holder.mutex("orders")?.acquire().await?;
        // So long that much was renewed.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let lock = other.mutex("orders")?;
        let next = tokio::spawn(async move { lock.acquire().await });
        until("one waits", || async { Ok(other.show("orders").await?.waiters.len() == 1) }).await?;
        set.set_around(follower, if silent { Weather::Silent } else { Weather::Cut });
        let next = soon("the next grant", next).await???;
        ensure!(!guard.is_valid(), "two hold at once");
        ensure!(next.token() > guard.token(), "{} came after {}", next.token(), guard.token());
        next.release().await?;
        set.set_around(follower, Weather::Clear);
        soon("it serves again", set.servers[follower].serves()).await??;
    }
    Ok(())
}

#[tokio::test]
async fn clients_of_a_minority_move_to_the_others_and_lose_nothing() -> Result<()> {
    let set = three().await?;
    let (_clients, guards) = holders(&url(&set), 6).await?;
    let leader = set.leader().await.context("nobody leads")?;
    set.set_around((leader + 1) % 3, Weather::Cut);
    outlive(&guards, SystemClock.now()).await?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// A leader that is alone does not know it at once: it would answer from what it has.
#[tokio::test]
async fn nothing_is_read_behind_a_lonely_leader() -> Result<()> {
    let set = three().await?;
    let leader = set.leader().await.context("nobody leads")?;
    let behind = at(&set, leader).await?;
    let register = behind.register("balance")?;
    register.write("old", Condition::always()).await?;
    set.set_around(leader, Weather::Silent);
    let read = tokio::time::timeout(Duration::from_millis(800), register.read()).await;
    ensure!(!matches!(read, Ok(Ok(_))), "{read:?} was read, though others may decide without it");
    set.set_around(leader, Weather::Clear);
    until("it is read again", || async {
        Ok(register.read().await.is_ok_and(|entry| entry.value.as_deref() == Some(b"old")))
    })
    .await
}

#[tokio::test]
async fn a_cluster_goes_on_while_any_of_its_servers_is_cut_off() -> Result<()> {
    let set = three().await?;
    let client = client(&url(&set)).await?;
    for server in 0..3 {
        set.set_around(server, Weather::Silent);
        soon("a grant", async {
            loop {
                match client.mutex("orders")?.acquire().await {
                    Ok(guard) => return guard.release().await,
                    Err(error) if error.is_transient() => {}
                    Err(error) => return Err(error),
                }
            }
        })
        .await??;
        set.set_around(server, Weather::Clear);
        soon("it serves again", set.servers[server].serves()).await??;
    }
    Ok(())
}
