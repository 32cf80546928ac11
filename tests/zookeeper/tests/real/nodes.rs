//! What becomes of nodes: deleted by others, numbered past the greatest number, in folders that vanish; and of sessions.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::{ClientBuilder, Clock, ErrorKind, LostReason, SystemClock};
use palisade_testkit::trial::outlive;
use palisade_zookeeper_trials::{bare, client, nodes, one, soon, until, url};

#[tokio::test]
async fn a_deleted_node_is_noticed_by_the_next_renewal() -> Result<()> {
    let set = one().await?;
    let (one, two, other) = (client(&url(&set)).await?, client(&url(&set)).await?, bare(&set).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    let kept = one.mutex("other")?.acquire().await?;
    let node = nodes(&other, "orders").await?.pop().context("it has a node")?;
    ensure!(other.delete(&format!("/locks/orders/{node}")).await?, "it is not there");
    let next = soon("the next grant", two.mutex("orders")?.acquire()).await??;
    soon("the holder is told", guard.lost()).await?;
    ensure!(next.token() > guard.token(), "{} came after {}", next.token(), guard.token());
    ensure!(kept.is_valid(), "another one went with it");
    // And who lost it frees nobody else's.
    let _ = guard.release().await;
    ensure!(next.is_valid() && nodes(&other, "orders").await?.len() == 1, "it freed its successor");
    Ok(())
}

#[tokio::test]
async fn a_waiter_whose_node_is_deleted_asks_again() -> Result<()> {
    let set = one().await?;
    let (client, other) = (client(&url(&set)).await?, bare(&set).await?);
    let guard = client.mutex("orders")?.acquire().await?;
    let second = palisade_zookeeper_trials::client(&url(&set)).await?;
    let lock = second.mutex("orders")?;
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
        "two hold at once"
    );
    let mut all = nodes(&other, "orders").await?;
    all.sort_by_key(|name| name.rsplit_once('-').map(|(_, number)| number.to_owned()));
    let last = all.pop().context("it waits")?;
    other.delete(&format!("/locks/orders/{last}")).await?;
    let ended = tokio::time::timeout(Duration::from_secs(5), &mut waiting).await;
    if let Ok(ended) = ended {
        // It says that it is gone; whoever wants it asks anew.
        let error = ended.err().context("two hold at once")?;
        ensure!(error.kind() == ErrorKind::Lost, "{error:?}");
        guard.release().await?;
        soon("the turn", lock.acquire()).await??.release().await?;
    } else {
        guard.release().await?;
        soon("the turn", waiting).await??.release().await?;
    }
    Ok(())
}

/// Numbers are of 32 bits with a sign: after 2147483647 comes -2147483648.
#[tokio::test]
async fn numbers_that_wrap_keep_their_order() -> Result<()> {
    let set = one().await?;
    let (client, other) = (client(&url(&set)).await?, bare(&set).await?);
    client.mutex("orders")?.acquire().await?.release().await?;
    let made = |number: &str| format!("/locks/orders/_c_{}-lock-{number}", uuid());
    let (last, first) = (made("2147483647"), made("-2147483648"));
    // As they would be made, one after the other; ours has a low number, half a round ahead of the latter.
    other.create(&last, false).await?;
    other.create(&first, false).await?;
    let shown = client.show("orders").await?;
    ensure!((shown.holders.len(), shown.waiters.len()) == (1, 1), "{shown:?}");
    let (holds, waits) = (shown.holders[0].token.context("it holds")?, shown.waiters[0].claim);
    ensure!(last.contains(&holder_id(&shown)), "the one after the wrap was let in: {shown:?}");
    other.delete(&last).await?;
    let shown = client.show("orders").await?;
    ensure!(shown.holders[0].claim == waits, "{shown:?}");
    ensure!(shown.holders[0].token > Some(holds), "the token fell: {shown:?}");
    Ok(())
}

fn uuid() -> String {
    palisade_core::ClaimId::random().to_string().chars().enumerate().fold(
        String::new(),
        |mut text, (at, digit)| {
            if matches!(at, 8 | 12 | 16 | 20) {
                text.push('-');
            }
            text.push(digit);
            text
        },
    )
}

/// The id of whoever holds, as its node has it.
fn holder_id(shown: &palisade::ResourceView) -> String {
    let id = shown.holders[0].claim.to_string();
    format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..])
}

/// Servers sweep an empty folder away, and its numbers begin at 0 again.
#[tokio::test]
async fn a_folder_that_vanished_comes_back_and_tokens_rise() -> Result<()> {
    let set = one().await?;
    let (client, other) = (client(&url(&set)).await?, bare(&set).await?);
    let lock = client.mutex("orders")?;
    let mut last = None;
    for round in 0..5 {
        let guard = lock.acquire().await?;
        let node = nodes(&other, "orders").await?.pop().context("it has a node")?;
        ensure!(node.ends_with("-lock-0000000000"), "round {round}: {node}");
        ensure!(Some(guard.token()) > last, "round {round}: {} came after {last:?}", guard.token());
        last = Some(guard.token());
        guard.release().await?;
        ensure!(other.delete("/locks/orders").await?, "the folder is not there");
    }
    // All of it, and while somebody wants in.
    let (one, two) = (palisade_zookeeper_trials::client(&url(&set)).await?, client);
    for _ in 0..20 {
        let take = |client: &palisade::Client| {
            let lock = client.mutex("orders");
            async move { lock?.acquire().await?.release().await }
        };
        let (first, second, _) = tokio::join!(take(&one), take(&two), other.delete("/locks/orders"));
        first?;
        second?;
    }
    Ok(())
}

#[tokio::test]
async fn a_session_that_ran_out_loses_what_was_on_it_and_no_more() -> Result<()> {
    let set = one().await?;
    let short = client(&url(&set)).await?;
    let guard = short.mutex("orders")?.acquire().await?;
    set.servers[0].stop()?;
    let reason = soon("the holder is told", guard.lost()).await?;
    ensure!(matches!(reason, LostReason::EngineUnreachable | LostReason::Expired), "{reason:?}");
    set.servers[0].go_on()?;
    // A claim of the same TTL is on another session.
    let again = soon("the next grant", short.mutex("orders")?.acquire()).await??;
    ensure!(again.token() > guard.token(), "{} came after {}", again.token(), guard.token());
    tokio::time::sleep(Duration::from_secs(4)).await;
    ensure!(again.is_valid(), "it is not renewed");
    again.release().await?;
    Ok(())
}

/// A pause that is shorter than the session: in doubt for a while, then valid again.
#[tokio::test]
async fn a_connection_that_is_lost_for_a_while_loses_nothing() -> Result<()> {
    let set = one().await?;
    let client = ClientBuilder::default().ttl(Duration::from_secs(6)).connect(&url(&set)).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    let other = bare(&set).await?;
    let before = nodes(&other, "orders").await?;
    set.servers[0].kill().await?;
    set.servers[0].start_again().await?;
    until("it is renewed", || async { Ok(guard.is_valid() && client.show("orders").await.is_ok()) }).await?;
    tokio::time::sleep(Duration::from_secs(7)).await;
    ensure!(guard.is_valid(), "it was lost");
    ensure!(nodes(&other, "orders").await? == before, "it is another node");
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_ttl_that_no_session_can_have_is_refused() -> Result<()> {
    let options = palisade_testkit::servers::ZooKeeperOptions {
        lines: vec!["minSessionTimeout=6000".to_owned(), "maxSessionTimeout=20000".to_owned()],
        ..Default::default()
    };
    let set = palisade_testkit::servers::ZooKeeperSet::start(1, options).await?;
    let long = ClientBuilder::default().ttl(Duration::from_mins(1)).connect(&url(&set)).await?;
    let error = long.mutex("orders")?.acquire().await.err().context("it was granted")?;
    ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
    // What was asked for, what there is, and both ways out.
    for part in ["60s", "20s", "--ttl", "maxSessionTimeout=60000"] {
        ensure!(error.to_string().contains(part), "it does not say {part}: {error}");
    }
    // A shorter one than the servers' own shortest is kept by the client itself.
    let short = client(&url(&set)).await?;
    let guard = short.mutex("orders")?.acquire().await?;
    let end = guard.deadline().context("it has no end")?;
    ensure!(end <= SystemClock.now() + guard.ttl(), "it ends later than was asked for");
    outlive(std::slice::from_ref(&guard), SystemClock.now()).await?;
    guard.release().await?;
    Ok(())
}
