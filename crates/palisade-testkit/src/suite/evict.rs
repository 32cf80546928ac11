//! Ending one claim by force.

use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::{Claim, ClaimId, Evicted, GoneReason, Renewed, Signal};

use crate::Context;
use crate::case::cases;
use crate::context::{bounded, name};

cases! { "evict" {
    only_this_claim_ends [Evict] "Ends this claim, never its whole session."
    unknown_claims_are_not_found [Evict] "Ends this claim, never its whole session."
}
each_way {
    the_holder_is_told_and_the_next_comes_in [Evict] "The holder is told, with the reason; the next in line comes in, with a greater token."
} }

async fn only_this_claim_ends(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let claims: Vec<Arc<Claim>> =
        ["a", "b", "c"].iter().map(|text| Arc::new(context.alone(&name(text)))).collect();
    for claim in &claims {
        one.take(claim).await?;
    }
    let evicted = two.evict(&claims[1].resource, claims[1].id, "just this one").await?;
    ensure!(evicted == Evicted::Done, "the claim was not found");
    for (claim, stands) in claims.iter().zip([true, false, true]) {
        let valid = matches!(one.renew_one(claim).await?, Renewed::Valid { .. });
        ensure!(valid == stands, "after the eviction of b, {:?} stands: {valid}", claim.resource);
    }
    one.take(&Arc::new(context.alone(&name("b")))).await?;
    Ok(())
}

async fn unknown_claims_are_not_found(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone(&name("a")));
    session.take(&claim).await?;
    for (resource, id) in [(name("a"), ClaimId::random()), (name("b"), claim.id)] {
        let evicted = session.evict(&resource, id, "a mistake").await?;
        ensure!(evicted == Evicted::NotFound, "{id} on {resource:?} is {evicted:?}");
    }
    ensure!(session.holders(&claim.resource).await? == [claim.id], "another claim was ended");
    Ok(())
}

async fn the_holder_is_told_and_the_next_comes_in(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let mut signals = one.signals().subscribe();
    let (held, next) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    let first = one.take(&held).await?;
    two.queue(&next).await?;
    let reason = "held for 3 h; 'ops' asked — 🚲";
    ensure!(two.evict(&held.resource, held.id, reason).await? == Evicted::Done, "it was not found");
    let second = two.turn(&next).await?;
    ensure!(second.token > first.token, "{} does not follow {}", second.token, first.token);
    let told = async {
        loop {
            match signals.recv().await? {
                Signal::Gone { claim, reason } if claim == held.id => return anyhow::Ok(reason),
                _ => {}
            }
        }
    };
    let told = bounded(context.patience(), "the holder's signal", told).await??;
    ensure!(told == GoneReason::Evicted { reason: reason.to_owned() }, "the holder heard {told:?}");
    ensure!(two.evict(&held.resource, held.id, reason).await? == Evicted::NotFound, "it was found twice");
    Ok(())
}
