//! Dropping a verb's future at every point at which it can pause.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use palisade_core::{Claim, Claimed, Waited};

use crate::case::cases;
use crate::context::{eventually, name};
use crate::{CancelAfter, Cancelled, Context, Session};

cases! { "cancel" {}
each_way {
    a_dropped_claim_can_be_withdrawn [] "Dropping the future leaves the claim in doubt; the caller withdraws it. A withdrawal that was asked for later wins, also over a claim that is still on its way."
    a_dropped_queued_claim_can_be_withdrawn [] "Dropping the future leaves the claim in doubt; the caller withdraws it. A withdrawal that was asked for later wins, also over a claim that is still on its way."
    claims_dropped_together_can_be_withdrawn [] "Dropping the future leaves every one of them in doubt, as [`Engine::claim`] does."
    claims_dropped_in_a_crowd_can_be_withdrawn [] "Dropping the future leaves the claim in doubt; the caller withdraws it. A withdrawal that was asked for later wins, also over a claim that is still on its way."
    claims_repeated_in_a_crowd_can_be_withdrawn [] "Dropping the future leaves the claim in doubt; the caller withdraws it. A withdrawal that was asked for later wins, also over a claim that is still on its way."
    a_dropped_wait_leaves_nothing_but_the_place [] "Dropping the future keeps the place in the queue."
    a_dropped_withdrawal_can_be_repeated [] "Answers per claim, in the order asked; never an error to repeat."
    a_dropped_renewal_keeps_the_claim [] "A claim that is gone is never brought back"
} }

/// More pauses than any verb has; a verb that reaches it never completes.
const MOST_POLLS: usize = 1000;

/// Polls at most `polls` times, or until a pause that nobody ends.
///
/// A future that waits for what this case alone could do would hang; the limit stands for the
/// caller's own timeout, and cuts at the same pause.
async fn cut<T>(polls: usize, future: impl Future<Output = T>) -> Result<T, Cancelled> {
    const CALLERS_TIMEOUT: Duration = Duration::from_millis(500);
    tokio::time::timeout(CALLERS_TIMEOUT, CancelAfter::new(polls, future)).await.unwrap_or(Err(Cancelled))
}

/// Drops `claim` after 0, 1, 2 … polls, withdraws it, and looks for what is left of it.
async fn drop_claim(session: &Session, watcher: &Session, make: impl Fn() -> Arc<Claim>) -> Result<()> {
    for polls in 0..MOST_POLLS {
        let claim = make();
        let outcome = cut(polls, session.claim(&claim)).await;
        session.give_back(&claim).await?;
        let view = watcher.view(&claim.resource).await?;
        let mut left = view.holders.iter().chain(&view.waiters);
        ensure!(!left.any(|left| left.claim == claim.id), "left behind after {polls} polls: {view:?}");
        if outcome.is_ok() {
            return Ok(());
        }
    }
    bail!("the claim did not complete within {MOST_POLLS} polls")
}

async fn a_dropped_claim_can_be_withdrawn(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    drop_claim(&one, &two, || Arc::new(context.alone(&name("a")))).await?;
    // What was still on its way has landed once the engine answers on the same connection.
    let last = Arc::new(context.alone(&name("a")));
    one.take(&last).await?;
    one.release(&last).await?;
    two.nothing_left().await
}

async fn a_dropped_queued_claim_can_be_withdrawn(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let held = Arc::new(context.alone(&name("a")));
    two.take(&held).await?;
    drop_claim(&one, &two, || Arc::new(context.alone(&name("a")))).await?;
    two.release(&held).await?;
    two.nothing_left().await
}

async fn claims_dropped_together_can_be_withdrawn(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let held = Arc::new(context.alone(&name("held")));
    two.take(&held).await?;
    for polls in 0..MOST_POLLS {
        let asked = ["a", "held", "b"].map(|asked| Arc::new(context.alone(&name(asked))));
        let outcome = cut(polls, one.claim_each(&asked)).await;
        one.withdraw(&asked).await?;
        let left = two.everything().await?.resources;
        ensure!(left.len() == 1, "left behind after {polls} polls: {left:?}");
        ensure!(left[0].waiters.is_empty(), "left behind after {polls} polls: {left:?}");
        if outcome.is_ok() {
            two.release(&held).await?;
            return two.nothing_left().await;
        }
    }
    bail!("the claims did not complete within {MOST_POLLS} polls")
}

/// Those who are asked for at the same time may be sent in one, also if some are not wanted any more.
async fn claims_dropped_in_a_crowd_can_be_withdrawn(context: Context) -> Result<()> {
    const POLLS: usize = 5;
    let (one, two) = context.connect_two().await?;
    for first in 0..POLLS {
        let resources = (0..context.effort(20, 10)).map(|number| name(&format!("r{number}")));
        let asked: Vec<Arc<Claim>> = resources.map(|resource| Arc::new(context.alone(&resource))).collect();
        let dropped = asked.iter().zip(first..).map(|(claim, at)| {
            let asking = cut(at % POLLS, one.claim(claim));
            async {
                let _ = asking.await;
                one.give_back(claim).await
            }
        });
        futures::future::try_join_all(dropped).await?;
        two.nothing_left().await?;
        for claim in &asked {
            let again = Arc::new(context.alone(&claim.resource));
            two.take(&again).await?;
            two.release(&again).await?;
        }
    }
    Ok(())
}

/// As a quorum does that raises a token, and gives the claim back before each node has answered: the withdrawal finds the
/// claim, and must keep out the copy that comes behind it all the same.
async fn claims_repeated_in_a_crowd_can_be_withdrawn(context: Context) -> Result<()> {
    const TURNS: usize = 6;
    let (one, two) = context.connect_two().await?;
    for first in 0..TURNS {
        let mut held = Vec::new();
        for number in 0..context.effort(20, 10) {
            let claim = Arc::new(context.alone(&name(&format!("r{number}"))));
            let mut raised = (*claim).clone();
            raised.token_floor = Some(one.take(&claim).await?.token);
            held.push((claim, Arc::new(raised)));
        }
        let dropped = held.iter().zip(first..).map(|((claim, raised), at)| {
            let (one, asking) = (&one, one.claim(raised));
            async move {
                // Cut while others run, who may be about to send it.
                tokio::select! {
                    biased;
                    _ = asking => {}
                    () = others_run(at % TURNS) => {}
                }
                one.give_back(claim).await
            }
        });
        futures::future::try_join_all(dropped).await?;
        two.nothing_left().await?;
        for (claim, _) in &held {
            let again = Arc::new(context.alone(&claim.resource));
            two.take(&again).await?;
            two.release(&again).await?;
        }
    }
    Ok(())
}

async fn others_run(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

async fn a_dropped_wait_leaves_nothing_but_the_place(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    for polls in 0..MOST_POLLS {
        let (held, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
        two.take(&held).await?;
        one.queue(&next).await?;
        // The hand-over happens while the wait is polled, so that it can be cut behind the grant too.
        let (outcome, released) = tokio::join!(cut(polls, one.wait(&next)), two.give_back(&held));
        released?;
        one.turn(&next).await?;
        one.release(&next).await?;
        two.nothing_left().await?;
        if let Ok(waited) = outcome {
            ensure!(matches!(waited?, Waited::Granted(_)), "the wait ended without the grant");
            return Ok(());
        }
    }
    bail!("the wait did not complete within {MOST_POLLS} polls")
}

async fn a_dropped_withdrawal_can_be_repeated(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    for polls in 0..MOST_POLLS {
        let claim = Arc::new(context.alone(&name("a")));
        one.take(&claim).await?;
        let outcome = cut(polls, one.withdraw(std::slice::from_ref(&claim))).await;
        one.give_back(&claim).await?;
        two.nothing_left().await?;
        if outcome.is_ok() {
            return Ok(());
        }
    }
    bail!("the withdrawal did not complete within {MOST_POLLS} polls")
}

async fn a_dropped_renewal_keeps_the_claim(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let claim = Arc::new(context.alone(&name("a")));
    let grant = one.take(&claim).await?;
    for polls in 0..MOST_POLLS {
        let outcome = cut(polls, one.renew(std::slice::from_ref(&claim))).await;
        let again = one.claim(&claim).await?;
        ensure!(matches!(&again, Claimed::Granted(same) if same.token == grant.token), "now {again:?}");
        if outcome.is_ok() {
            one.release(&claim).await?;
            return eventually(context.patience(), "the release", || async {
                Ok(two.everything().await?.resources.is_empty().then_some(()))
            })
            .await;
        }
    }
    bail!("the renewal did not complete within {MOST_POLLS} polls")
}
