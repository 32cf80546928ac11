//! What renewal keeps, and what it never brings back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use palisade_core::{Claim, GoneReason, Renewed};

use crate::case::cases;
use crate::context::{bounded, eventually, name, now};
use crate::{Context, Session};

cases! { "renewal" {
    answers_come_in_the_order_asked [] "Answers per claim, in the order asked."
    a_renewed_waiter_keeps_its_place [Fifo] "A queued claim that is renewed keeps its place."
    an_evicted_claim_is_never_brought_back [Evict] "A claim that is gone is never brought back"
    a_renewal_that_races_a_withdrawal_brings_nothing_back [] "not by a renewal that was on its way while it was withdrawn, expired or evicted."
    the_new_end_counts_from_the_request [] "`valid_until` counts from before the request was sent."
}
each_way {
    a_renewed_claim_outlives_its_ttl [] "A claim that was not renewed within its TTL is gone, and its resource passes on."
    an_expired_claim_is_gone_and_passes_on [] "A claim that was not renewed within its TTL is gone, and its resource passes on."
    an_expired_claim_is_never_brought_back [] "A claim that is gone is never brought back"
    a_withdrawn_claim_is_never_brought_back [] "A claim that is gone is never brought back"
}
alone {
    ten_thousand_claims_in_one_go [] "Answers per claim, in the order asked."
} }

/// Renews until three TTLs have passed, five times per TTL.
async fn keep(context: &Context, session: &Session, claims: &[Arc<Claim>]) -> Result<()> {
    let end = now() + context.short() * 3;
    while now() < end {
        for answer in session.renew(claims).await? {
            ensure!(matches!(answer, Renewed::Valid { .. }), "renewed in time, but {answer:?}");
        }
        tokio::time::sleep(context.short() / 5).await;
    }
    Ok(())
}

fn is_gone(renewed: &Renewed) -> bool {
    matches!(renewed, Renewed::Gone(_))
}

async fn a_renewed_claim_outlives_its_ttl(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone_briefly(&name("a"))), Arc::new(context.alone(&name("a"))));
    let grant = one.take(&held).await?;
    two.queue(&next).await?;
    keep(&context, &one, std::slice::from_ref(&held)).await?;
    ensure!(one.take(&held).await?.token == grant.token, "renewing changed the token");
    ensure!(two.waiters(&held.resource).await? == [next.id], "it passed on although it was renewed");
    // And without renewal it does pass on.
    two.turn_within(&next, context.until_expired()).await?;
    Ok(())
}

async fn a_renewed_waiter_keeps_its_place(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let held = Arc::new(context.alone(&name("a")));
    let (first, second) = (Arc::new(context.alone_briefly(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&held).await?;
    two.queue(&first).await?;
    one.queue(&second).await?;
    keep(&context, &two, std::slice::from_ref(&first)).await?;
    let waiters = one.waiters(&held.resource).await?;
    ensure!(waiters == [first.id, second.id], "the line is now {waiters:?}");
    two.renew_one(&first).await?;
    one.release(&held).await?;
    two.turn(&first).await?;
    Ok(())
}

async fn an_expired_claim_is_gone_and_passes_on(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone_briefly(&name("a"))), Arc::new(context.alone(&name("a"))));
    one.take(&held).await?;
    two.queue(&next).await?;
    let grant = two.turn_within(&next, context.until_expired()).await?;
    let answer = one.renew_one(&held).await?;
    ensure!(answer == Renewed::Gone(GoneReason::Expired), "the expired one hears {answer:?}");
    let view = two.view(&held.resource).await?;
    ensure!(view.holders.len() == 1 && view.holders[0].token == Some(grant.token), "now {view:?}");
    Ok(())
}

async fn an_expired_claim_is_never_brought_back(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone_briefly(&name("a")));
    session.take(&claim).await?;
    wait_until_free(&context, &session, &claim).await?;
    ensure!(is_gone(&session.renew_one(&claim).await?), "an expired claim was renewed");
    session.nothing_left().await
}

async fn wait_until_free(context: &Context, session: &Session, claim: &Claim) -> Result<()> {
    eventually(context.until_expired(), "expiry", || async {
        Ok(session.holders(&claim.resource).await?.is_empty().then_some(()))
    })
    .await
}

async fn a_withdrawn_claim_is_never_brought_back(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone(&name("a")));
    session.take(&claim).await?;
    session.release(&claim).await?;
    ensure!(is_gone(&session.renew_one(&claim).await?), "a withdrawn claim was renewed");
    session.nothing_left().await
}

async fn an_evicted_claim_is_never_brought_back(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone(&name("a")));
    session.take(&claim).await?;
    session.evict(&claim.resource, claim.id, "enough").await?;
    let answer = session.renew_one(&claim).await?;
    let evicted = GoneReason::Evicted { reason: "enough".to_owned() };
    ensure!(answer == Renewed::Gone(evicted), "the evicted one hears {answer:?}");
    session.nothing_left().await
}

async fn a_renewal_that_races_a_withdrawal_brings_nothing_back(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    for round in 0..context.effort(40, 20) {
        let claim = Arc::new(context.alone(&name("a")));
        one.take(&claim).await?;
        let (renewing, withdrawing) = ((two.clone(), Arc::clone(&claim)), (one.clone(), Arc::clone(&claim)));
        let renewal = tokio::spawn(async move { renewing.0.renew_one(&renewing.1).await });
        let withdrawal = tokio::spawn(async move { withdrawing.0.give_back(&withdrawing.1).await });
        renewal.await??;
        withdrawal.await??;
        ensure!(one.holders(&claim.resource).await?.is_empty(), "round {round}: it came back");
    }
    Ok(())
}

async fn answers_come_in_the_order_asked(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let held: Vec<_> = (0..6).map(|at| Arc::new(context.alone(&name(&format!("r{at}"))))).collect();
    for claim in &held {
        session.take(claim).await?;
    }
    let stranger = Arc::new(context.alone(&name("r0")));
    session.release(&held[4]).await?;
    // No palindrome: an engine that answers backwards must not pass.
    let asked = [&stranger, &held[3], &held[0], &held[4], &held[5]].map(Arc::clone);
    let gone: Vec<bool> = session.renew(&asked).await?.iter().map(is_gone).collect();
    ensure!(gone == [true, false, false, true, false], "the answers are out of order: {gone:?}");
    ensure!(session.renew(&[]).await?.is_empty(), "nothing was asked");
    Ok(())
}

async fn ten_thousand_claims_in_one_go(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let count = context.effort(10_000, 1_000);
    let claims: Vec<_> = (0..count).map(|at| Arc::new(context.alone(&name(&format!("r{at}"))))).collect();
    let take = |claim: Arc<Claim>| {
        let session = session.clone();
        async move { session.take(&claim).await.map(drop) }
    };
    stream::iter(claims.clone()).map(take).buffer_unordered(64).try_collect::<()>().await?;
    for batch in claims.chunks(context.profile.batch.max(1)) {
        let answers = bounded(Duration::from_secs(5), "renewing a batch", session.renew(batch)).await??;
        let valid = answers.iter().filter(|answer| !is_gone(answer)).count();
        ensure!(valid == batch.len(), "{valid} of {} were renewed", batch.len());
    }
    for batch in claims.chunks(context.profile.batch.max(1)) {
        session.withdraw(batch).await?;
    }
    session.nothing_left().await
}

async fn the_new_end_counts_from_the_request(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, next) = (Arc::new(context.alone_briefly(&name("a"))), Arc::new(context.alone(&name("a"))));
    let grant = one.take(&held).await?;
    two.queue(&next).await?;
    let Renewed::Valid { until } = one.renew_one(&held).await? else {
        anyhow::bail!("it was gone at once");
    };
    ensure!(until >= grant.valid_until, "renewing shortened it");
    ensure!(until <= now() + context.short(), "{until:?} is more than one TTL after the request");
    two.turn_within(&next, context.until_expired()).await?;
    ensure!(now() >= until, "handed over before the renewed time was up");
    Ok(())
}
