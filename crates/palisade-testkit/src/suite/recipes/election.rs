//! Leader election.

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt;
use futures::stream::BoxStream;
use palisade::{ErrorKind, Leader, LostReason};

use crate::Context;
use crate::case::cases;
use crate::context::bounded;

cases! { "recipes" {
    the_leader_is_known [] "Who leads: one of many candidates, with a value that everyone can read."
    changes_of_leader_are_observed [] "Who leads, beginning with now: `None` while nobody does."
    a_deposed_leader_is_told [Evict] "[`crate::ErrorKind::Lost`] if another may lead by now."
} }

const NAME: &str = "leader";

type Leaders = BoxStream<'static, palisade::Result<Option<Leader>>>;

async fn until(context: &Context, leaders: &mut Leaders, value: Option<&str>) -> Result<()> {
    bounded(context.patience(), &format!("{value:?} to lead"), async {
        loop {
            let leader = leaders.next().await.context("the stream ended")??;
            if leader.as_ref().map(|leader| &leader.value[..]) == value.map(str::as_bytes) {
                return Ok(());
            }
        }
    })
    .await?
}

async fn the_leader_is_known(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    ensure!(one.election(NAME)?.leader().await?.is_none(), "somebody leads before the election");
    let first = one.election(NAME)?.campaign("one").await?;
    let leader = two.election(NAME)?.leader().await?.context("nobody leads")?;
    ensure!(leader.value == "one" && leader.token == first.token(), "it is {leader:?}");
    ensure!(*leader.owner == *one.owner(), "its owner is {:?}", leader.owner);
    ensure!(two.election(NAME)?.try_campaign("two").await?.is_none(), "two lead at once");
    let (token, candidate) = (first.token(), two.election(NAME)?);
    let (second, resigned) = tokio::join!(candidate.campaign("two"), first.resign());
    resigned?;
    ensure!(second?.token() > token, "tokens do not rise");
    Ok(())
}

async fn changes_of_leader_are_observed(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let mut leaders = two.election(NAME)?.observe().await?;
    until(&context, &mut leaders, None).await?;
    let leadership = one.election(NAME)?.campaign("first").await?;
    until(&context, &mut leaders, Some("first")).await?;
    leadership.proclaim("second").await?;
    until(&context, &mut leaders, Some("second")).await?;
    leadership.resign().await?;
    until(&context, &mut leaders, None).await
}

async fn a_deposed_leader_is_told(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let leadership = one.election(NAME)?.campaign("first").await?;
    two.evict(NAME, leadership.claim_id(), "deposed").await?;
    let reason = bounded(context.patience(), "the loss", leadership.lost()).await?;
    ensure!(matches!(reason, LostReason::Evicted { .. }), "it was told {reason:?}");
    let error = leadership.proclaim("still me").await.err().map(|error| error.kind());
    ensure!(error == Some(ErrorKind::Lost), "a deposed leader's proclamation says {error:?}");
    Ok(())
}
