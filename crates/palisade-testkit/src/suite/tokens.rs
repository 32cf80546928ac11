//! Tokens rise, whatever happens.

use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::{Condition, Family, Mode, Token};

use crate::case::cases;
use crate::context::{eventually, name};
use crate::{Context, Session};

cases! { "tokens" {
    they_rise_across_modes [Shared Fifo] "Of two grants that exclude each other, the later one has the greater token, also where the later one asked first."
    they_rise_across_slots [Slots] "Of two grants that exclude each other, the later one has the greater token"
}
each_way {
    they_rise_from_grant_to_grant [] "The token is greater than that of every grant of this resource that returned before the claim was asked for, whatever crashed in between."
    they_rise_across_connections [] "The token is greater than that of every grant of this resource that returned before the claim was asked for"
    they_rise_across_hand_overs [] "Of two grants that exclude each other, the later one has the greater token"
    they_rise_over_an_expiry [] "The token is greater than that of every grant of this resource that returned before the claim was asked for, whatever crashed in between."
}
alone {
    they_rise_across_restarts [Restart CrashSafe] "The token is greater than that of every grant of this resource that returned before the claim was asked for, whatever crashed in between."
    registers_outlive_restarts [Restart CrashSafe Registers] "Sees every write that was acknowledged before."
} }

/// Takes the resource and gives it back; the token must exceed `before`.
async fn once(context: &Context, session: &Session, before: Option<Token>) -> Result<Option<Token>> {
    let claim = Arc::new(context.alone(&name("a")));
    let token = session.take(&claim).await?.token;
    ensure!(Some(token) > before, "token {token} came after {before:?}");
    session.release(&claim).await?;
    Ok(Some(token))
}

async fn they_rise_from_grant_to_grant(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let mut last = None;
    for _ in 0..context.effort(50, 20) {
        // Free in between, so that an engine that forgets the resource must still count on.
        last = once(&context, &session, last).await?;
        session.nothing_left().await?;
    }
    Ok(())
}

async fn they_rise_across_connections(context: Context) -> Result<()> {
    let mut last = None;
    for _ in 0..context.effort(10, 5) {
        let session = context.connect().await?;
        last = once(&context, &session, last).await?;
        session.close().await;
    }
    Ok(())
}

async fn they_rise_across_hand_overs(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let line: Vec<_> = (0..6).map(|_| Arc::new(context.alone(&name("a")))).collect();
    let mut last = one.take(&line[0]).await?.token;
    for claim in &line[1..] {
        two.queue(claim).await?;
    }
    for at in 1..line.len() {
        let asker = if at == 1 { &one } else { &two };
        context.giver(asker, &one).give_back(&line[at - 1]).await?;
        let token = two.turn(&line[at]).await?.token;
        ensure!(token > last, "token {token} came after {last}");
        last = token;
    }
    Ok(())
}

async fn they_rise_over_an_expiry(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone_briefly(&name("a")));
    let token = session.take(&claim).await?.token;
    eventually(context.until_expired(), "expiry", || async {
        Ok(session.holders(&claim.resource).await?.is_empty().then_some(()))
    })
    .await?;
    once(&context, &session, Some(token)).await?;
    Ok(())
}

async fn they_rise_across_modes(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let modes = [Mode::Shared, Mode::Exclusive, Mode::Shared, Mode::Exclusive];
    let line: Vec<_> =
        modes.iter().map(|mode| Arc::new(context.claim(&resource, *mode).family(Family::Rw))).collect();
    let mut last = one.take(&line[0]).await?.token;
    for claim in &line[1..] {
        two.queue(claim).await?;
    }
    for at in 1..line.len() {
        let asker = if at == 1 { &one } else { &two };
        context.giver(asker, &one).give_back(&line[at - 1]).await?;
        let token = two.turn(&line[at]).await?.token;
        ensure!(token > last, "{} got {token} after {last}", line[at].mode);
        last = token;
    }
    Ok(())
}

async fn they_rise_across_slots(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let slot = || Arc::new(context.claim(&name("a"), Mode::Slot { of: 2 }));
    let (first, second) = (slot(), slot());
    let mut marks = [session.take(&first).await?, session.take(&second).await?].map(|grant| grant.token);
    let (mut inside, mut waiting) = ([first, second], [slot(), slot()]);
    for claim in &waiting {
        session.queue(claim).await?;
    }
    // The second slot is freed first: its next holder must pass the fence of that slot.
    for (claim, at) in waiting.iter_mut().zip([1, 0]) {
        session.release(&inside[at]).await?;
        let grant = session.turn(claim).await?;
        ensure!(grant.slot == Some(at as u32), "slot {at} was free, {:?} was given", grant.slot);
        ensure!(grant.token > marks[at], "slot {at} got {} after {}", grant.token, marks[at]);
        (marks[at], inside[at]) = (grant.token, Arc::clone(claim));
    }
    Ok(())
}

async fn they_rise_across_restarts(context: Context) -> Result<()> {
    let mut last = None;
    for _ in 0..3 {
        let session = context.connect().await?;
        last = once(&context, &session, last).await?;
        session.close().await;
        drop(session);
        context.fixture.restart().await?;
    }
    once(&context, &context.connect().await?, last).await?;
    Ok(())
}

async fn registers_outlive_restarts(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone(&name("lock")));
    let grant = session.take(&claim).await?;
    let token = session.fencing(&claim, &grant);
    let version = session.put(&name("a"), "kept", &Condition::always().token(token)).await?;
    session.close().await;
    drop(session);
    context.fixture.restart().await?;
    let session = context.connect().await?;
    let entry = session.entry(&name("a")).await?;
    ensure!(entry.value.as_deref() == Some(b"kept") && entry.version == version, "now it is {entry:?}");
    ensure!(entry.fence.mark(grant.slot) == Some(grant.token), "the fence is {:?}", entry.fence);
    Ok(())
}
