//! Mutex, write lock and one-slot semaphore: one holder at a time, and nothing left behind.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use palisade::{Client, ErrorKind, Released};

use crate::case::cases;
use crate::context::{bounded, eventually};
use crate::lock::{Lock, LockGuard};
use crate::{CancelAfter, Context};

cases! { "recipes" {}
each_way {
    one_holder_at_a_time [] "A lock that one holder has at a time."
    a_taken_lock_is_none_to_try [] "*Held by another* is `None`."
    a_limit_is_kept [] "*Not in time* is `None`."
    the_next_gets_it_on_release [] "Waits for the lock."
    a_dropped_acquire_leaves_nothing [] "Dropping the future leaves nothing behind, and loses the place in the queue."
    a_dropped_waiting_acquire_leaves_nothing [] "Dropping the future leaves nothing behind, and loses the place in the queue."
    a_dropped_try_leaves_nothing [] "Dropping the future leaves nothing behind."
    a_dropped_release_releases [] "Safe: once called, the claim is given back even if the future is dropped."
    waiting_for_oneself_is_an_error [] "Unless this is called, such a wait is an error instead of a hang."
    a_busy_lock_loses_nobody [] "A lock that one holder has at a time."
} }

const LOCK: &str = "lock";

/// Everything that was withdrawn in the background has left the engine.
pub(super) async fn until_nothing_left(context: &Context, client: &Client) -> Result<()> {
    eventually(context.patience(), "what was dropped to leave", || async {
        Ok(client.list("").await?.is_empty().then_some(()))
    })
    .await
}

async fn acquire(context: &Context, lock: &Lock) -> Result<LockGuard> {
    Ok(bounded(context.patience(), "acquire", lock.acquire()).await??)
}

async fn one_holder_at_a_time(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let (mine, yours) = (context.lock(&one, LOCK)?, context.lock(&two, LOCK)?);
    let mut last = None;
    for _ in 0..5 {
        for (lock, other) in [(&mine, &yours), (&yours, &mine)] {
            let guard = acquire(&context, lock).await?;
            ensure!(guard.is_valid(), "a fresh guard is not valid");
            ensure!(other.try_acquire().await?.is_none(), "two hold at once");
            ensure!(Some(guard.token()) > last, "token {} came after {last:?}", guard.token());
            last = Some(guard.token());
            ensure!(guard.release().await? == Released::InTime, "it was not released in time");
        }
    }
    until_nothing_left(&context, &one).await
}

async fn a_taken_lock_is_none_to_try(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let guard = context.lock(&one, LOCK)?.try_acquire().await?;
    ensure!(guard.is_some(), "a free lock was not taken");
    for client in [&one, &two] {
        ensure!(context.lock(client, LOCK)?.try_acquire().await?.is_none(), "two hold at once");
    }
    ensure!(two.show(LOCK).await?.waiters.is_empty(), "a try left a waiter");
    Ok(())
}

async fn a_limit_is_kept(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let guard = acquire(&context, &context.lock(&one, LOCK)?).await?;
    let waiting = context.lock(&two, LOCK)?;
    let early = waiting.acquire_within(Duration::from_millis(50)).await?;
    ensure!(early.is_none(), "two hold at once");
    eventually(context.patience(), "the waiter to leave", || async {
        Ok(one.show(LOCK).await?.waiters.is_empty().then_some(()))
    })
    .await?;
    let (later, released) = tokio::join!(waiting.acquire_within(context.patience()), guard.release());
    released?;
    ensure!(later?.is_some(), "a lock that was released in time was not taken");
    Ok(())
}

async fn the_next_gets_it_on_release(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let guard = acquire(&context, &context.lock(&one, LOCK)?).await?;
    let (first, waiting) = (guard.token(), context.lock(&two, LOCK)?);
    let (next, released) = tokio::join!(acquire(&context, &waiting), guard.release());
    ensure!(released? == Released::InTime, "it was not released in time");
    ensure!(next?.token() > first, "tokens do not rise");
    Ok(())
}

/// Drops what `make` makes after 0, 1, 2 … polls, until it completes; nothing may be left each time.
async fn drop_at_every_await<F, T>(context: &Context, watcher: &Client, make: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = palisade::Result<T>>,
{
    // Cuts a pause that only this case could end, as a caller's timeout would.
    const CALLERS_TIMEOUT: Duration = Duration::from_millis(500);
    for polls in 0..1000 {
        let cut = tokio::time::timeout(CALLERS_TIMEOUT, CancelAfter::new(polls, make())).await;
        let (timed_out, completed) = (cut.is_err(), matches!(cut, Ok(Ok(_))));
        drop(cut);
        eventually(context.patience(), "what was dropped to leave", || async {
            let view = watcher.show(LOCK).await?;
            Ok((view.waiters.is_empty() && view.holders.iter().all(|held| held.value.is_some()))
                .then_some(()))
        })
        .await
        .map_err(|error| error.context(format!("dropped after {polls} polls")))?;
        if completed || timed_out {
            return Ok(());
        }
    }
    bail!("it did not complete within 1000 polls")
}

async fn a_dropped_acquire_leaves_nothing(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let lock = context.lock(&one, LOCK)?;
    drop_at_every_await(&context, &two, || lock.acquire()).await?;
    until_nothing_left(&context, &two).await
}

async fn a_dropped_waiting_acquire_leaves_nothing(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.connect().await?);
    // Held by a claim with a value, so that it can be told from what must not be left.
    let held = Arc::new(context.alone(&crate::context::name(LOCK)).value("the holder"));
    two.take(&held).await?;
    let lock = context.lock(&one, LOCK)?;
    drop_at_every_await(&context, &one, || lock.acquire()).await?;
    two.release(&held).await?;
    until_nothing_left(&context, &one).await
}

async fn a_dropped_try_leaves_nothing(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let lock = context.lock(&one, LOCK)?;
    drop_at_every_await(&context, &two, || lock.try_acquire()).await?;
    drop_at_every_await(&context, &two, || lock.acquire_within(context.patience())).await?;
    until_nothing_left(&context, &two).await
}

async fn a_dropped_release_releases(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let lock = context.lock(&one, LOCK)?;
    for polls in 0..1000 {
        let guard = acquire(&context, &lock).await?;
        let outcome = CancelAfter::new(polls, guard.release()).await;
        until_nothing_left(&context, &two).await?;
        if outcome.is_ok() {
            return Ok(());
        }
    }
    bail!("the release did not complete within 1000 polls")
}

async fn waiting_for_oneself_is_an_error(context: Context) -> Result<()> {
    let client = context.client().await?;
    let lock = context.lock(&client, LOCK)?;
    // On a task of its own: what counts as oneself is the task.
    let outcome = tokio::spawn(async move {
        let _guard = lock.acquire().await?;
        lock.acquire().await.map(drop)
    });
    match bounded(context.patience(), "waiting for oneself", outcome).await?? {
        Err(error) if error.kind() == ErrorKind::WouldDeadlock => Ok(()),
        other => bail!("waiting for oneself says {other:?}"),
    }
}

async fn a_busy_lock_loses_nobody(context: Context) -> Result<()> {
    let inside = Arc::new(AtomicU32::new(0));
    let clients = try_join_all((0..4).map(|_| context.client())).await?;
    let (tasks, rounds) = (context.effort(16, 8) as usize, context.effort(10, 5));
    let workers = (0..tasks).map(|task| {
        let (context, client, inside) = (context.clone(), clients[task % 4].clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            let lock = context.lock(&client, LOCK)?;
            for _ in 0..rounds {
                let guard = acquire(&context, &lock).await?;
                ensure!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two hold at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await?;
            }
            anyhow::Ok(())
        })
    });
    for worker in try_join_all(workers).await? {
        worker?;
    }
    until_nothing_left(&context, &clients[0]).await
}
