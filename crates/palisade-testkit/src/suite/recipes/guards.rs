//! What a guard knows of itself: its end, its loss, and who keeps it alive.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use palisade::{Client, LostReason, MutexGuard, Released, Stopped};

use super::locks::until_nothing_left;
use crate::case::cases;
use crate::context::{bounded, eventually, now};
use crate::{Context, Counting};

cases! { "recipes" {
    work_is_released_however_it_ends [] "Takes the lock, runs `work`, and releases on success, error, panic and cancel."
    work_is_stopped_when_the_lock_is_lost [Evict] "The work is stopped, that is dropped, when the lock is lost, before anyone else can hold it."
}
each_way {
    a_dropped_guard_releases [] "Dropping it releases in the background"
    a_guard_is_renewed_while_it_lives [] "It is renewed by itself while it lives."
    a_guard_never_outlives_its_claim [] "Until when this guard is valid on the local boot-time clock, unless it is renewed before"
    an_evicted_guard_is_told [Evict] "Completes when the claim is lost, with the reason, before the engine can give it away."
    a_lost_guard_is_released_too_late [Evict] "It had expired or was evicted before. Nothing of its successor was touched."
    the_longest_hold_is_kept [] "The longest a guard may live: after it the guard is lost, whatever its holder does."
    closing_the_client_loses_its_guards [] "Completes when the claim is lost, with the reason, before the engine can give it away."
}
alone {
    ten_thousand_guards_cost_a_handful_of_calls [] "It is renewed by itself while it lives."
} }

const LOCK: &str = "lock";

async fn a_dropped_guard_releases(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let guard = context.lock(&one, LOCK)?.acquire().await?;
    let waiting = context.lock(&two, LOCK)?;
    let mut next = Box::pin(waiting.acquire());
    ensure!(futures::poll!(next.as_mut()).is_pending(), "two hold at once");
    drop(guard);
    drop(bounded(context.patience(), "the next after a drop", next).await??);
    until_nothing_left(&context, &one).await
}

async fn a_guard_is_renewed_while_it_lives(context: Context) -> Result<()> {
    let (one, two) = (context.client_with(context.short()).await?, context.client().await?);
    let guard = context.lock(&one, LOCK)?.acquire().await?;
    let (first, end) = (guard.deadline().context("no deadline")?, now() + context.short() * 3);
    eventually(context.short() * 4 + context.patience(), "three TTLs", || async {
        ensure!(guard.is_valid(), "it was lost although it was renewed");
        ensure!(context.lock(&two, LOCK)?.try_acquire().await?.is_none(), "two hold at once");
        Ok((now() >= end).then_some(()))
    })
    .await?;
    ensure!(guard.deadline() > Some(first), "its deadline never moved");
    ensure!(guard.release().await? == Released::InTime, "it was not released in time");
    Ok(())
}

async fn a_guard_never_outlives_its_claim(context: Context) -> Result<()> {
    let client = context.client().await?;
    let lock = context.lock(&client, LOCK)?.ttl(context.short() * 10);
    let before = now();
    let guard = lock.acquire().await?;
    let deadline = guard.deadline().context("no deadline")?;
    let margin = context.profile.drift.margin(guard.ttl());
    let latest = now() + guard.ttl();
    ensure!(deadline > before, "it was never valid");
    ensure!(deadline <= latest.saturating_sub(margin), "its deadline leaves no margin for drift");
    ensure!(guard.remaining() <= guard.ttl(), "more is left than the TTL");
    Ok(())
}

/// Evicts whoever holds the lock.
async fn evict(operator: &Client, reason: &str) -> Result<()> {
    let holder = operator.show(LOCK).await?.holders.first().map(|holder| holder.claim);
    operator.evict(LOCK, holder.context("nobody holds")?, reason).await?;
    Ok(())
}

async fn an_evicted_guard_is_told(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let guard = context.lock(&one, LOCK)?.acquire().await?;
    evict(&two, "maintenance").await?;
    let reason = bounded(context.patience(), "the loss", guard.lost()).await?;
    ensure!(reason == LostReason::Evicted { reason: "maintenance".to_owned() }, "it was told {reason:?}");
    ensure!(!guard.is_valid() && guard.remaining().is_zero(), "it calls itself valid after its loss");
    Ok(())
}

async fn a_lost_guard_is_released_too_late(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let guard = context.lock(&one, LOCK)?.acquire().await?;
    evict(&two, "make room").await?;
    let next = bounded(context.patience(), "the next", context.lock(&two, LOCK)?.acquire()).await??;
    ensure!(guard.release().await? == Released::TooLate, "an evicted guard was released in time");
    let holders = one.show(LOCK).await?.holders;
    ensure!(holders.len() == 1 && holders[0].claim == next.claim_id(), "the successor lost it");
    Ok(())
}

async fn the_longest_hold_is_kept(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let longest = Duration::from_millis(100);
    let started = now();
    let guard = context.lock(&one, LOCK)?.longest_hold(longest).acquire().await?;
    let reason = bounded(context.patience(), "the longest hold", guard.lost()).await?;
    ensure!(reason == LostReason::HeldTooLong, "it was told {reason:?}");
    ensure!(now() >= started + longest && !guard.is_valid(), "it was lost too early, or is still valid");
    // Its holder does nothing, and the next comes in all the same.
    let next = context.lock(&two, LOCK)?.acquire_within(context.patience()).await?;
    ensure!(next.is_some(), "a guard past its longest hold kept the next out");
    Ok(())
}

async fn closing_the_client_loses_its_guards(context: Context) -> Result<()> {
    let client = context.client_with(context.short()).await?;
    let guard = context.lock(&client, LOCK)?.acquire().await?;
    let lost = guard.lost();
    bounded(context.patience(), "close", client.close()).await?;
    bounded(context.patience(), "the loss", lost).await?;
    ensure!(!guard.is_valid(), "it calls itself valid after its client was closed");
    Ok(())
}

async fn work_is_released_however_it_ends(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let mutex = one.mutex(LOCK)?;
    let failed: Result<(), &str> = mutex.run(|_| async { Err("work failed") }).await?;
    ensure!(failed == Err("work failed"), "the work's own error did not come through");
    until_nothing_left(&context, &two).await?;
    let panicking = mutex.clone();
    // Resumed rather than raised, so that it is not printed as if it were a fault of the suite.
    let raise = || std::panic::resume_unwind(Box::new("on purpose"));
    let panic = tokio::spawn(async move { panicking.run(|_| async move { raise() }).await.is_ok() });
    ensure!(panic.await.is_err(), "the panic did not come through");
    until_nothing_left(&context, &two).await?;
    let cancelled =
        tokio::time::timeout(Duration::from_millis(20), mutex.run(|_| std::future::pending::<()>()));
    ensure!(cancelled.await.is_err(), "work that never ends has ended");
    until_nothing_left(&context, &two).await
}

async fn work_is_stopped_when_the_lock_is_lost(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let mutex = one.mutex(LOCK)?;
    let (start, started) = tokio::sync::oneshot::channel();
    let work = mutex.run(|_| async {
        let _ = start.send(());
        std::future::pending::<()>().await;
    });
    let operator = async {
        started.await?;
        evict(&two, "stop it").await
    };
    let (stopped, evicted) =
        bounded(context.patience(), "the stop", async { tokio::join!(work, operator) }).await?;
    evicted?;
    ensure!(matches!(stopped, Err(Stopped::Lost(LostReason::Evicted { .. }))), "it ended with {stopped:?}");
    Ok(())
}

async fn ten_thousand_guards_cost_a_handful_of_calls(context: Context) -> Result<()> {
    let counting = Arc::new(Counting::new(context.connect().await?.engine()));
    let calls = counting.calls();
    // Long enough that a busy machine has done with one round before the next, also where each renewal is a request.
    let ttl = context.short().max(Duration::from_secs(12));
    let client = Client::builder().ttl(ttl).over(counting)?;
    let count = context.effort(10_000, 1_000);
    let take = |at: u32| {
        let client = client.clone();
        async move { client.mutex(&format!("m{at}"))?.acquire().await }
    };
    let guards: Vec<MutexGuard> = stream::iter(0..count).map(take).buffer_unordered(64).try_collect().await?;
    let (calls_before, before) = (calls.renew.load(Ordering::Relaxed), calls.renewed.load(Ordering::Relaxed));
    let enough = before + 2 * u64::from(count);
    eventually(ttl * 2 + context.patience(), "two rounds of renewal", || async {
        Ok((calls.renewed.load(Ordering::Relaxed) >= enough).then_some(()))
    })
    .await?;
    let (made, renewed) =
        (calls.renew.load(Ordering::Relaxed) - calls_before, calls.renewed.load(Ordering::Relaxed) - before);
    let (batch, per_round) = (context.profile.batch as u64, u64::from(count));
    let allowed = renewed.div_ceil(per_round) * (per_round.div_ceil(batch) + 4);
    ensure!(made <= allowed, "{renewed} renewals took {made} calls, {allowed} would do");
    ensure!(guards.iter().all(|guard| guard.is_valid()), "a guard was lost");
    // As they were taken: a look that waits behind ten thousand releases takes longer than a call may.
    let release = |guard: MutexGuard| guard.release();
    stream::iter(guards).map(release).buffer_unordered(64).try_collect::<Vec<Released>>().await?;
    until_nothing_left(&context, &client).await
}
