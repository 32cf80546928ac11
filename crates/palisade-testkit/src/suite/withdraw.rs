//! Giving back: always possible, and never someone else's.

use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::Withdrawn;

use crate::Context;
use crate::case::cases;
use crate::context::name;

cases! { "withdraw" {
    answers_come_in_the_order_asked [] "Answers per claim, in the order asked; never an error to repeat."
}
each_way {
    it_can_be_repeated [] "never an error to repeat."
    an_expired_holder_cannot_free_its_successor [] "Touches this very claim only: an expired holder cannot free its successor."
    an_evicted_holder_cannot_free_its_successor [Evict] "Touches this very claim only: an expired holder cannot free its successor."
    a_stranger_frees_nobody [] "Touches this very claim only"
    the_next_is_told_at_once [] "The next in line is told at once."
} }

async fn answers_come_in_the_order_asked(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let held = Arc::new(context.alone(&name("a")));
    let queued = Arc::new(context.alone(&name("a")));
    let stranger = Arc::new(context.alone(&name("a")));
    let other = Arc::new(context.alone(&name("b")));
    session.take(&held).await?;
    session.queue(&queued).await?;
    session.take(&other).await?;
    let batch = [&stranger, &queued, &other, &held].map(Arc::clone);
    let answers = session.withdraw(&batch).await?;
    let expected = [Withdrawn::AlreadyGone, Withdrawn::LeftQueue, Withdrawn::Released, Withdrawn::Released];
    ensure!(answers == expected, "the answers are {answers:?}");
    let again = session.withdraw(&batch).await?;
    ensure!(again.iter().all(|answer| *answer == Withdrawn::AlreadyGone), "repeated, it says {again:?}");
    ensure!(session.withdraw(&[]).await?.is_empty(), "nothing was asked");
    session.nothing_left().await
}

async fn it_can_be_repeated(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, queued) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&held).await?;
    two.queue(&queued).await?;
    for (at, expected) in [Withdrawn::LeftQueue, Withdrawn::AlreadyGone].into_iter().enumerate() {
        ensure!(two.give_back(&queued).await? == expected, "queued, attempt {at}");
    }
    for (at, expected) in [Withdrawn::Released, Withdrawn::AlreadyGone].into_iter().enumerate() {
        ensure!(one.give_back(&held).await? == expected, "held, attempt {at}");
    }
    one.nothing_left().await
}

async fn an_expired_holder_cannot_free_its_successor(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (expired, next) = (Arc::new(context.alone_briefly(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&expired).await?;
    two.queue(&next).await?;
    two.turn_within(&next, context.until_expired()).await?;
    ensure!(one.give_back(&expired).await? == Withdrawn::AlreadyGone, "an expired claim was released");
    ensure!(two.holders(&next.resource).await? == [next.id], "the successor lost the resource");
    one.turned_away(context.alone(&next.resource)).await?;
    Ok(())
}

async fn an_evicted_holder_cannot_free_its_successor(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (evicted, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&evicted).await?;
    two.queue(&next).await?;
    two.evict(&evicted.resource, evicted.id, "make room").await?;
    two.turn(&next).await?;
    ensure!(one.give_back(&evicted).await? == Withdrawn::AlreadyGone, "an evicted claim was released");
    ensure!(two.holders(&next.resource).await? == [next.id], "the successor lost the resource");
    Ok(())
}

async fn a_stranger_frees_nobody(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, queued) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&held).await?;
    one.queue(&queued).await?;
    let stranger = Arc::new(context.alone(&name("a")));
    ensure!(two.give_back(&stranger).await? == Withdrawn::AlreadyGone, "a stranger released something");
    ensure!(one.holders(&held.resource).await? == [held.id], "the holder was freed by a stranger");
    ensure!(one.waiters(&held.resource).await? == [queued.id], "the waiter was removed by a stranger");
    Ok(())
}

async fn the_next_is_told_at_once(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let line: Vec<_> = (0..4).map(|_| Arc::new(context.alone(&name("a")))).collect();
    one.take(&line[0]).await?;
    for claim in &line[1..] {
        two.queue(claim).await?;
    }
    for at in 0..3 {
        let mut turn = Box::pin(two.turn(&line[at + 1]));
        ensure!(futures::poll!(turn.as_mut()).is_pending(), "two hold at once");
        let asker = if at == 0 { &one } else { &two };
        context.giver(asker, &one).give_back(&line[at]).await?;
        turn.await?;
    }
    Ok(())
}
