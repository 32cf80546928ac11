//! How a turn comes, and how a waiter learns of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use palisade_core::{Evicted, GoneReason, Withdrawn};

use crate::case::cases;
use crate::context::{name, now};
use crate::workload::Workload;
use crate::{CancelAfter, Context};

cases! { "waiting" {
    the_turn_is_told_not_polled [Pushed] "It is told, it does not poll, unless the profile says so."
    an_expired_waiter_is_gone [] "A claim that expired or was evicted while it waited is *gone*, with the reason."
    an_evicted_waiter_is_gone [Evict] "A claim that expired or was evicted while it waited is *gone*, with the reason."
    an_unknown_claim_is_gone [] "A claim that is not known is *gone*."
    a_dead_waiter_in_the_middle_stalls_nobody [] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    waiting_at_two_places_keeps_one_place [] "Waiting again, or at two places at once, keeps the same place."
}
each_way {
    release_hands_over [] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    a_waiter_that_leaves_hands_over [] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    eviction_hands_over [Evict] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    expiry_hands_over_and_not_before [] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    a_grant_is_checked_before_it_is_said [] "The wake-up is a hint: that the claim holds the resource is checked before it is said."
    waiting_again_keeps_the_place [Fifo] "Dropping the future keeps the place in the queue."
    no_wake_up_is_lost [] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
} }

async fn release_hands_over(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    let first = one.take(&held).await?;
    two.queue(&next).await?;
    let (released, turn) = tokio::join!(one.release(&held), two.turn(&next));
    released?;
    let turn = turn?;
    ensure!(turn.token > first.token, "{} does not follow {}", turn.token, first.token);
    let again = two.turn(&next).await?;
    ensure!(again.token == turn.token, "waiting for a held claim changes its token");
    Ok(())
}

async fn a_waiter_that_leaves_hands_over(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let line: Vec<_> = (0..3).map(|_| Arc::new(context.alone(&name("a")))).collect();
    one.take(&line[0]).await?;
    one.queue(&line[1]).await?;
    two.queue(&line[2]).await?;
    ensure!(one.give_back(&line[1]).await? == Withdrawn::LeftQueue, "it did not leave the queue");
    one.release(&line[0]).await?;
    two.turn(&line[2]).await?;
    Ok(())
}

async fn eviction_hands_over(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&held).await?;
    two.queue(&next).await?;
    let (evicted, turn) = tokio::join!(two.evict(&held.resource, held.id, "make room"), two.turn(&next));
    ensure!(evicted? == Evicted::Done, "the holder was not found");
    turn?;
    Ok(())
}

async fn expiry_hands_over_and_not_before(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone_briefly(&name("a"))), Arc::new(context.alone(&name("a"))));
    let first = one.take(&held).await?;
    two.queue(&next).await?;
    let turn = two.turn_within(&next, context.until_expired()).await?;
    // The holder believed in its grant until then; the next must not come in earlier.
    ensure!(now() >= first.valid_until, "handed over before the holder's time was up");
    ensure!(turn.token > first.token, "{} does not follow {}", turn.token, first.token);
    Ok(())
}

async fn a_grant_is_checked_before_it_is_said(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let line: Vec<_> = (0..8).map(|_| Arc::new(context.alone(&name("a")))).collect();
    one.take(&line[0]).await?;
    for claim in &line[1..] {
        two.queue(claim).await?;
    }
    let mut waits: Vec<_> = line[1..].iter().map(|claim| Box::pin(two.turn(claim))).collect();
    for at in 0..line.len() - 1 {
        // All that still wait are enlisted, so that a wake-up sent to too many shows.
        for wait in &mut waits[at..] {
            ensure!(futures::poll!(wait.as_mut()).is_pending(), "granted while number {at} holds");
        }
        let asker = if at == 0 { &one } else { &two };
        context.giver(asker, &one).give_back(&line[at]).await?;
        let grant = waits[at].as_mut().await?;
        let view = one.view(&line[0].resource).await?;
        ensure!(view.holders.len() == 1, "{} hold at once", view.holders.len());
        ensure!(view.holders[0].claim == line[at + 1].id, "another one holds");
        ensure!(view.holders[0].token == Some(grant.token), "the grant's token is not in force");
    }
    Ok(())
}

async fn the_turn_is_told_not_polled(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let mut times = Vec::new();
    for _ in 0..21 {
        let (held, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
        one.take(&held).await?;
        two.queue(&next).await?;
        let mut turn = Box::pin(two.turn(&next));
        ensure!(futures::poll!(turn.as_mut()).is_pending(), "two hold at once");
        let started = Instant::now();
        one.release(&held).await?;
        turn.await?;
        times.push(started.elapsed());
        two.release(&next).await?;
    }
    times.sort();
    let median = times[times.len() / 2];
    ensure!(median < Duration::from_millis(100), "half of the hand-overs took {median:?} and more");
    Ok(())
}

async fn an_expired_waiter_is_gone(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, brief) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone_briefly(&name("a"))));
    one.take(&held).await?;
    let place = two.queue(&brief).await?;
    let reason = two.gone(&brief).await?;
    ensure!(reason == GoneReason::Expired, "the reason is {reason:?}");
    ensure!(now() >= place.valid_until, "gone before its time was up");
    ensure!(one.waiters(&held.resource).await?.is_empty(), "it is still in the queue");
    Ok(())
}

async fn an_evicted_waiter_is_gone(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&held).await?;
    two.queue(&next).await?;
    let (gone, evicted) = tokio::join!(two.gone(&next), one.evict(&next.resource, next.id, "too many"));
    ensure!(evicted? == Evicted::Done, "the waiter was not found");
    let gone = gone?;
    ensure!(gone == GoneReason::Evicted { reason: "too many".to_owned() }, "the reason is {gone:?}");
    ensure!(one.holders(&held.resource).await? == [held.id], "the holder went with it");
    Ok(())
}

async fn an_unknown_claim_is_gone(context: Context) -> Result<()> {
    let session = context.connect().await?;
    session.gone(&Arc::new(context.alone(&name("never claimed")))).await?;
    let claim = Arc::new(context.alone(&name("a")));
    session.take(&claim).await?;
    session.release(&claim).await?;
    session.gone(&claim).await?;
    session.nothing_left().await
}

async fn a_dead_waiter_in_the_middle_stalls_nobody(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, last) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    let dead = Arc::new(context.alone_briefly(&name("a")));
    one.take(&held).await?;
    two.queue(&dead).await?;
    one.queue(&last).await?;
    one.release(&held).await?;
    // The dead one's turn comes, and goes by expiry.
    one.turn_within(&last, context.until_expired()).await?;
    Ok(())
}

async fn waiting_again_keeps_the_place(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let line: Vec<_> = (0..3).map(|_| Arc::new(context.alone(&name("a")))).collect();
    one.take(&line[0]).await?;
    two.queue(&line[1]).await?;
    two.queue(&line[2]).await?;
    for polls in 0..4 {
        let cut = CancelAfter::new(polls, two.wait(&line[1]));
        // A wait that is not woken again is cut by the clock instead.
        let _ = tokio::time::timeout(Duration::from_millis(20), cut).await;
        let waiters = one.waiters(&line[0].resource).await?;
        ensure!(waiters == [line[1].id, line[2].id], "after {polls} polls the line is {waiters:?}");
    }
    one.release(&line[0]).await?;
    two.turn(&line[1]).await?;
    Ok(())
}

async fn waiting_at_two_places_keeps_one_place(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&held).await?;
    two.queue(&next).await?;
    let (here, there, released) = tokio::join!(two.turn(&next), two.turn(&next), one.release(&held));
    released?;
    let (here, there) = (here?, there?);
    ensure!(here.token == there.token, "two waits of one claim got {} and {}", here.token, there.token);
    two.release(&next).await?;
    two.nothing_left().await
}

async fn no_wake_up_is_lost(context: Context) -> Result<()> {
    let workload = Workload { connections: 4, tasks: context.effort(24, 12), rounds: context.effort(12, 6) };
    workload.alone(&context).await?;
    context.connect().await?.nothing_left().await
}
