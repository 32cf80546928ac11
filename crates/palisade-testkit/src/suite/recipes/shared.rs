//! Read-write lock and semaphore.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use palisade::ErrorKind;

use crate::Context;
use crate::case::cases;
use crate::context::bounded;

cases! { "recipes" {
    many_read_or_one_writes [Shared] "A lock that many readers or one writer have at a time."
    writers_are_not_starved [Shared Fifo] "In the order of arrival: a reader that comes after a waiting writer waits behind it, so that writers are not starved."
    a_writer_downgrades [Shared] "Goes on as a reader, without a moment in which another could write. The token stays."
    a_reader_does_not_upgrade [Shared] "Always refused, with the guard given back: two readers that both upgrade would wait for each other for ever."
    slots_are_numbered [Slots] "At most N holders at a time, each with a numbered slot and a fencing token of its own."
    slots_can_be_resized [Slots] "Puts another number of slots in force for everyone, at once. Holders beyond a smaller number keep their slots until they release; nobody comes in until enough have."
} }

const LOCK: &str = "lock";

async fn many_read_or_one_writes(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let (mine, yours) = (one.rw_lock(LOCK)?, two.rw_lock(LOCK)?);
    let readers = [mine.read().await?, yours.read().await?];
    ensure!(mine.try_write().await?.is_none(), "a writer came in beside readers");
    for reader in readers {
        reader.release().await?;
    }
    let writer = yours.write().await?;
    ensure!(mine.try_read().await?.is_none(), "a reader came in beside the writer");
    ensure!(mine.try_write().await?.is_none(), "two writers at once");
    writer.release().await?;
    Ok(())
}

async fn writers_are_not_starved(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let (mine, yours) = (one.rw_lock(LOCK)?, two.rw_lock(LOCK)?);
    let reader = mine.read().await?;
    let mut turn = Box::pin(yours.write());
    crate::context::eventually(context.patience(), "the writer to wait", || {
        let waiting = futures::FutureExt::now_or_never(futures::future::poll_fn(|cx| {
            std::task::Poll::Ready(turn.as_mut().poll(cx).is_pending())
        }));
        let one = one.clone();
        async move {
            ensure!(waiting == Some(true), "a writer came in beside a reader");
            Ok((one.show(LOCK).await?.waiters.len() == 1).then_some(()))
        }
    })
    .await?;
    ensure!(mine.try_read().await?.is_none(), "a reader overtook the waiting writer");
    reader.release().await?;
    bounded(context.patience(), "the writer", turn).await??.release().await?;
    Ok(())
}

async fn a_writer_downgrades(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let writer = one.rw_lock(LOCK)?.write().await?;
    let token = writer.token();
    let reader = writer.downgrade().await?;
    ensure!(reader.token() == token && reader.is_valid(), "the downgrade changed the grant");
    ensure!(two.rw_lock(LOCK)?.try_write().await?.is_none(), "a writer came in beside a reader");
    let other = two.rw_lock(LOCK)?.try_read().await?;
    ensure!(other.is_some(), "the lock is still held by a writer");
    Ok(())
}

async fn a_reader_does_not_upgrade(context: Context) -> Result<()> {
    let client = context.client().await?;
    let reader = client.rw_lock(LOCK)?.read().await?;
    let Err((reader, error)) = reader.upgrade().await else { bail!("the upgrade was made") };
    ensure!(error.kind() == ErrorKind::WouldDeadlock, "it says {:?}", error.kind());
    ensure!(reader.is_valid(), "the guard did not come back");
    Ok(())
}

async fn slots_are_numbered(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let mut guards = Vec::new();
    for client in [&one, &two, &one] {
        guards.push(client.semaphore(LOCK, 3)?.acquire().await?);
    }
    let slots: BTreeSet<u32> = guards.iter().map(palisade::SemaphoreGuard::slot).collect();
    ensure!(slots == (0..3).collect(), "the slots are {slots:?}");
    ensure!(two.semaphore(LOCK, 3)?.try_acquire().await?.is_none(), "four hold three slots");
    let Err(error) = two.semaphore(LOCK, 4)?.try_acquire().await else { bail!("another number was taken") };
    ensure!(error.kind() == ErrorKind::Conflict, "another number of slots says {:?}", error.kind());
    let freed = guards.remove(1);
    let (slot, token) = (freed.slot(), freed.token());
    freed.release().await?;
    let next = two.semaphore(LOCK, 3)?.acquire().await?;
    ensure!(next.slot() == slot && next.token() > token, "the freed slot was not given on");
    Ok(())
}

async fn slots_can_be_resized(context: Context) -> Result<()> {
    let client = context.client().await?;
    let first = client.semaphore(LOCK, 1)?.acquire().await?;
    first.resize(2).await?;
    let second = client.semaphore(LOCK, 2)?.acquire().await?;
    second.resize(1).await?;
    first.release().await?;
    ensure!(client.semaphore(LOCK, 1)?.try_acquire().await?.is_none(), "two hold one slot");
    second.release().await?;
    let last = client.semaphore(LOCK, 1)?.try_acquire().await?;
    ensure!(last.is_some(), "the free slot is not given on");
    Ok(())
}
