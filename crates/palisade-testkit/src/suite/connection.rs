//! What a connection says of itself, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use palisade_core::{ClaimId, ErrorKind, Liveness, Renewed, Signal};

use tokio::sync::broadcast::Receiver;

use crate::Context;
use crate::case::cases;
use crate::context::{bounded, name};

cases! { "connection" {
    the_profile_never_changes [] "Never changes while the connection lives."
    connections_to_one_store_share_a_source [] "Two connections whose tokens compare say the same source; any others do not."
    a_closed_connection_says_so [] "May be called twice. Verbs afterwards fail with *closed*."
    claims_of_a_closed_connection_pass_on [] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    a_withdrawn_claim_is_not_signalled [] "A claim that its own client withdrew is not."
    an_evicted_holder_is_signalled [Evict] "A held claim that is evicted, or whose session ends, is told here without being asked for."
} }

async fn the_profile_never_changes(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let before = session.profile().clone();
    let claim = Arc::new(context.alone(&name("a")));
    session.take(&claim).await?;
    session.release(&claim).await?;
    ensure!(*session.profile() == before, "the profile changed to {:?}", session.profile());
    ensure!(before == context.profile, "two connections promise different things");
    Ok(())
}

async fn connections_to_one_store_share_a_source(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    ensure!(one.source() == two.source(), "{} is not {}", one.source(), two.source());
    ensure!(!one.source().as_str().is_empty(), "the source has no id");
    Ok(())
}

async fn a_closed_connection_says_so(context: Context) -> Result<()> {
    let session = context.connect().await?;
    session.close().await;
    session.close().await;
    let claim = Arc::new(context.alone(&name("a")));
    let errors = [
        session.claim(&claim).await.err(),
        session.renew(std::slice::from_ref(&claim)).await.err(),
        session.withdraw(std::slice::from_ref(&claim)).await.err(),
        session.wait(&claim).await.err(),
    ];
    for (verb, error) in ["claim", "renew", "withdraw", "wait"].into_iter().zip(errors) {
        let kind = error.map(|error| error.kind());
        ensure!(kind == Some(ErrorKind::Closed), "{verb} after close says {kind:?}");
    }
    Ok(())
}

async fn claims_of_a_closed_connection_pass_on(context: Context) -> Result<()> {
    let (dying, other) = context.connect_two().await?;
    let held = Arc::new(context.alone_briefly(&name("a")));
    let next = Arc::new(context.alone(&name("a")));
    let first = dying.take(&held).await?;
    other.queue(&next).await?;
    dying.close().await;
    let limit = match context.profile.liveness {
        Liveness::Kernel => Duration::from_secs(1),
        _ => context.until_expired(),
    };
    let second = other.turn_within(&next, limit).await?;
    ensure!(second.token > first.token, "{} does not follow {}", second.token, first.token);
    Ok(())
}

async fn a_withdrawn_claim_is_not_signalled(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let mut signals = session.signals().subscribe();
    let (one, two) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    session.take(&one).await?;
    session.release(&one).await?;
    // Later verbs on the same resource would push out anything that was still on its way.
    session.take(&two).await?;
    ensure!(matches!(session.renew_one(&two).await?, Renewed::Valid { .. }), "the second claim is gone");
    while let Ok(signal) = signals.try_recv() {
        ensure!(!matches!(signal, Signal::Gone { .. }), "its own withdrawal was signalled: {signal:?}");
    }
    Ok(())
}

async fn an_evicted_holder_is_signalled(context: Context) -> Result<()> {
    let (holder, operator) = context.connect_two().await?;
    let mut signals = holder.signals().subscribe();
    let claim = Arc::new(context.alone(&name("a")));
    holder.take(&claim).await?;
    operator.evict(&claim.resource, claim.id, "maintenance").await?;
    let told = bounded(context.patience(), "the signal", next_gone(&mut signals)).await??;
    ensure!(told == claim.id, "another claim was signalled");
    Ok(())
}

async fn next_gone(signals: &mut Receiver<Signal>) -> Result<ClaimId> {
    loop {
        if let Signal::Gone { claim, .. } = signals.recv().await? {
            return Ok(claim);
        }
    }
}
