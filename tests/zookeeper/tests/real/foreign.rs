//! Nodes as other clients make them, on the same locks. The clients themselves: `tests/interop`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use palisade_core::{Claim, Claimed, Engine, Mode, Name, Owner, Ttl, Withdrawn};
use palisade_zookeeper::{ZooKeeperConfig, ZooKeeperEngine};
use palisade_zookeeper_trials::{bare, client, nodes, one, soon, url};

#[tokio::test]
async fn nodes_of_all_kinds_keep_us_out_and_hand_over() -> Result<()> {
    let set = one().await?;
    let (client, other) = (client(&url(&set)).await?, bare(&set).await?);
    client.mutex("orders")?.acquire().await?.release().await?;
    let id = "01234567-89ab-cdef-0123-456789abcdef";
    for made in [
        format!("_c_{id}-lock-"),
        format!("_c_{id}-latch-"),
        format!("_c_{id}-__WRIT__"),
        "0123456789abcdef0123456789abcdef__lock__".to_owned(),
        "lock-".to_owned(),
    ] {
        let node = other.create(&format!("/locks/orders/{made}"), true).await?;
        let lock = client.rw_lock("orders")?;
        ensure!(client.mutex("orders")?.try_acquire().await?.is_none(), "{made}: two hold at once");
        ensure!(lock.try_read().await?.is_none(), "{made}: two hold at once");
        let label = client.show("orders").await?.holders[0].owner.label.clone().unwrap_or_default();
        ensure!(label.contains("not a Palisade client"), "{label}");
        let mut waiting = Box::pin(lock.write());
        ensure!(
            tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err(),
            "{made}: two hold at once"
        );
        other.delete(&node).await?;
        soon("our turn", waiting).await??.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn readers_of_others_share_with_ours() -> Result<()> {
    let set = one().await?;
    let (client, other) = (client(&url(&set)).await?, bare(&set).await?);
    let lock = client.rw_lock("orders")?;
    lock.write().await?.release().await?;
    for made in
        ["_c_01234567-89ab-cdef-0123-456789abcdef-__READ__", "0123456789abcdef0123456789abcdef__rlock__"]
    {
        let node = other.create(&format!("/locks/orders/{made}"), true).await?;
        let reader = lock.try_read().await?;
        ensure!(reader.is_some(), "{made}: two readers do not share");
        drop(reader);
        ensure!(lock.try_write().await?.is_none(), "{made}: a writer came in");
        other.delete(&node).await?;
    }
    Ok(())
}

/// A lease of theirs is a slot, and whoever is first in their queue makes the next one.
#[tokio::test]
async fn slots_of_others_are_counted_and_their_turn_is_waited_for() -> Result<()> {
    let set = one().await?;
    let (client, other) = (client(&url(&set)).await?, bare(&set).await?);
    let slots = client.semaphore("orders", 2)?;
    slots.acquire().await?.release().await?;
    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let lease = format!("/locks/orders/leases/_c_{id}-lease-");
    let (first, ours) = (other.create(&lease, true).await?, slots.acquire().await?);
    ensure!(other.children("/locks/orders/leases").await?.len() == 2, "ours is not where theirs is");
    ensure!(slots.try_acquire().await?.is_none(), "three hold two slots");
    ensure!(client.show("orders").await?.holders.len() == 2, "{:?}", client.show("orders").await?);
    // As `InterProcessSemaphoreV2` does: first in the queue, then with a lease too many, then without the former.
    let turn = other.create(&format!("/locks/orders/locks/_c_{id}-lock-"), true).await?;
    let early = other.create(&lease, true).await?;
    let shown = client.show("orders").await?;
    ensure!((shown.holders.len(), shown.waiters.len()) == (2, 2), "{shown:?}");
    let mut waiting = Box::pin(slots.acquire());
    ours.release().await?;
    ensure!(tokio::time::timeout(SHORT, &mut waiting).await.is_err(), "one of theirs was overtaken");
    other.delete(&turn).await?;
    ensure!(tokio::time::timeout(SHORT, &mut waiting).await.is_err(), "three hold two slots");
    other.delete(&first).await?;
    let guard = soon("our turn", waiting).await??;
    ensure!(guard.slot() < 2, "slot {} of two", guard.slot());
    guard.release().await?;
    other.delete(&early).await?;
    Ok(())
}

const SHORT: Duration = Duration::from_millis(200);

/// Nobody leaves, but there are more slots: that must wake whoever is first.
#[tokio::test]
async fn another_number_of_slots_wakes_those_who_wait() -> Result<()> {
    let set = one().await?;
    // Of another client, since nobody may wait for itself.
    let (one, client) = (client(&url(&set)).await?, client(&url(&set)).await?);
    let (few, many) = (client.semaphore("orders", 1)?, client.semaphore("orders", 3)?);
    let first = one.semaphore("orders", 1)?.acquire().await?;
    let (second, third) = (few.acquire(), few.acquire());
    let (mut second, mut third) = (Box::pin(second), Box::pin(third));
    for waiting in [&mut second, &mut third] {
        ensure!(tokio::time::timeout(SHORT, waiting).await.is_err(), "two hold one slot");
    }
    first.resize(3).await?;
    let (second, third) = (soon("the second", second).await??, soon("the third", third).await??);
    ensure!(second.token() > first.token() && third.token() > second.token(), "tokens fall");
    ensure!(many.try_acquire().await?.is_none(), "four hold three slots");
    Ok(())
}

/// They are apart at the servers, and one resource all the same.
#[tokio::test]
async fn a_mutex_and_a_semaphore_of_one_name_exclude_each_other_by_arrival() -> Result<()> {
    let set = one().await?;
    // Of different clients, since nobody may wait for itself.
    let (one, two, three) = (client(&url(&set)).await?, client(&url(&set)).await?, client(&url(&set)).await?);
    let (mutex, slots, late) =
        (two.mutex("orders")?, one.semaphore("orders", 2)?, three.semaphore("orders", 2)?);
    let mut last = None;
    for _ in 0..20 {
        let slot = slots.acquire().await?;
        ensure!(mutex.try_acquire().await?.is_none(), "a mutex beside a slot");
        let alone = mutex.acquire();
        let mut alone = Box::pin(alone);
        ensure!(tokio::time::timeout(SHORT / 10, &mut alone).await.is_err(), "a mutex beside a slot");
        ensure!(late.try_acquire().await?.is_none(), "a slot before the mutex that came first");
        let later = late.acquire();
        let mut later = Box::pin(later);
        ensure!(tokio::time::timeout(SHORT / 10, &mut later).await.is_err(), "a slot beside a mutex");
        let token = slot.token();
        slot.release().await?;
        let alone = soon("the mutex", alone).await??;
        ensure!(tokio::time::timeout(SHORT / 10, &mut later).await.is_err(), "a slot beside a mutex");
        ensure!(Some(token) > last && alone.token() > token, "tokens fall");
        alone.release().await?;
        let later = soon("the slot", later).await??;
        last = Some(later.token());
        later.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn our_nodes_are_called_as_theirs() -> Result<()> {
    let set = one().await?;
    let other = bare(&set).await?;
    for (dialect, expected) in
        [("curator", ["-lock-", "-__READ__", "-__WRIT__"]), ("kazoo", ["__lock__", "__rlock__", "__lock__"])]
    {
        let client = client(&format!("{}?dialect={dialect}", url(&set))).await?;
        let mutex = client.mutex("mutex")?.acquire().await?;
        let (read, write) = (client.rw_lock("read")?.read().await?, client.rw_lock("write")?.write().await?);
        for (name, expected) in ["mutex", "read", "write"].into_iter().zip(expected) {
            let nodes = nodes(&other, name).await?;
            ensure!(nodes.len() == 1 && nodes[0].contains(expected), "{nodes:?} is not {expected}");
        }
        mutex.release().await?;
        read.release().await?;
        write.release().await?;
    }
    Ok(())
}

/// What waits for a slot and what has one is told apart by the node's own name, whatever the resource is called.
#[tokio::test]
async fn a_resource_may_be_called_as_the_folders_for_slots_are() -> Result<()> {
    let set = one().await?;
    let engine = ZooKeeperEngine::open(ZooKeeperConfig::parse(&url(&set))?).await?;
    for name in ["leases", "locks"] {
        let claim = || {
            let owner = Arc::new(Owner::this_process());
            anyhow::Ok(Arc::new(Claim::new(Name::new(name)?, Mode::Slot { of: 1 }, Ttl::default(), owner)))
        };
        let (holds, waits) = (claim()?, claim()?);
        let first = engine.claim(&holds).await?;
        ensure!(matches!(first, Claimed::Granted(_)), "{first:?}");
        let second = engine.claim(&waits).await?;
        ensure!(matches!(second, Claimed::Queued(_)), "{second:?}");
        let left = engine.withdraw(&[waits, holds]).await?;
        ensure!(left == [Withdrawn::LeftQueue, Withdrawn::Released], "{name}: {left:?}");
    }
    Ok(())
}
