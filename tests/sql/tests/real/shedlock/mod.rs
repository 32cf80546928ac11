//! Locks that clients of ShedLock see, too: its own statements against ours, on one table. What is the same on every server
//! is here.

mod mariadb;
mod place;
mod postgres;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::{Client, LostReason};
use palisade_core::{Claim, ClaimId, Claimed, Mode, Name, Owner, Token, Ttl};
use palisade_sql_trials::{soon, until};
use tokio::task::JoinSet;

use self::place::Place;
use crate::alike::turns_while_cut;

const MINUTE: Duration = Duration::from_mins(1);

/// Asks all of this of one kind of server.
macro_rules! alike {
    ($start:path) => {
        $crate::shedlock::alike! { $start;
            who_holds_has_the_row_and_who_has_the_row_holds,
            a_hold_lasts_as_long_as_it_is_renewed_and_rows_last_with_it,
            what_is_kept_after_it_was_unlocked_is_waited_for,
            who_dies_keeps_the_others_out_for_its_time_and_no_longer,
            whose_row_is_taken_away_is_told,
            an_unprotected_counter_loses_nothing,
            a_wait_that_is_dropped_leaves_no_row_behind,
            whoever_holds_can_be_evicted_by_the_id_it_is_shown_with,
            connections_may_be_cut_at_any_step_and_no_row_is_left,
            a_crash_of_the_server_frees_no_row,
            a_row_that_is_locked_by_a_long_transaction_holds_up_nobody_else,
            what_comes_late_takes_nothing_from_the_next_holder,
        }
    };
    ($start:path; $($case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() -> anyhow::Result<()> {
                $crate::shedlock::$case($start().await?).await
            }
        )*
    };
}
pub(crate) use alike;

async fn one_waits(client: &Client) -> Result<()> {
    until("one waits", || async { Ok(client.show("orders").await?.waiters.len() == 1) }).await
}

async fn who_holds_has_the_row_and_who_has_the_row_holds(server: Place) -> Result<()> {
    let (one, two) = (server.ours().await?, server.ours().await?);
    let mut theirs = server.theirs("a-java-service").await?;
    let guard = one.mutex("orders")?.acquire().await?;
    let (said, signed) = (server.row("locked_by").await?, format!("{}:{}", guard.token(), guard.claim_id()));
    ensure!(said.starts_with("palisade:") && said.ends_with(&signed), "the row is {said}");
    ensure!(server.is_held().await?, "the row is not held");
    ensure!(!theirs.lock("orders", MINUTE).await?, "both hold");
    ensure!(two.mutex("orders")?.try_acquire().await?.is_none(), "two of ours hold");
    let token = guard.token();
    guard.release().await?;
    ensure!(theirs.lock("orders", MINUTE).await?, "what was released is not free");
    ensure!(one.mutex("orders")?.try_acquire().await?.is_none(), "both hold");
    ensure!(server.claims().await? == 0, "a claim is left");

    let lock = two.mutex("orders")?;
    let mut waits = Box::pin(lock.acquire());
    tokio::select! {
        _ = waits.as_mut() => anyhow::bail!("both hold"),
        seen = one_waits(&one) => seen?,
    }
    let seen = one.show("orders").await?;
    let label = seen.holders.first().and_then(|holder| holder.owner.label.clone()).unwrap_or_default();
    ensure!(seen.holders.len() == 1 && label.contains("a-java-service"), "shown as {seen:?}");
    ensure!(seen.waiters[0].token.is_none(), "who waits has a token: {seen:?}");
    let listed = one.list("").await?;
    ensure!(listed.len() == 1 && listed[0].holders.is_empty(), "listed as {listed:?}");
    theirs.unlock("orders", Duration::ZERO).await?;
    let guard = soon("our turn", waits).await??;
    ensure!(guard.token() > token, "the token fell");
    drop(guard);
    theirs.lock_soon("orders", MINUTE).await
}

async fn a_hold_lasts_as_long_as_it_is_renewed_and_rows_last_with_it(server: Place) -> Result<()> {
    let one = server.patient().await?;
    let mut theirs = server.theirs("a-java-service").await?;
    let guard = one.mutex("orders")?.acquire().await?;
    let first = server.row("lock_until").await?;
    until("it outlives its first TTL", || async {
        server.is(&format!("{} > timestamp '{first}'", server.now())).await
    })
    .await?;
    ensure!(guard.is_valid(), "it was lost");
    ensure!(!theirs.lock("orders", MINUTE).await?, "both hold");
    guard.release().await?;
    ensure!(theirs.lock("orders", MINUTE).await?, "what was released is not free");
    ensure!(theirs.extend("orders", MINUTE).await?, "ShedLock's own row is not its own");
    Ok(())
}

/// A job of ShedLock's may keep its lock for a while after it is done, so that no clock that is off runs it twice.
async fn what_is_kept_after_it_was_unlocked_is_waited_for(server: Place) -> Result<()> {
    let one = server.ours().await?;
    let mut theirs = server.theirs("a-java-service").await?;
    ensure!(theirs.lock("orders", MINUTE).await?, "it is not free");
    theirs.unlock("orders", Duration::from_secs(2)).await?;
    let kept = server.row("lock_until").await?;
    let guard = soon("our turn", one.mutex("orders")?.acquire()).await??;
    ensure!(server.is(&format!("locked_at >= timestamp '{kept}'")).await?, "it came in early");
    guard.release().await?;
    Ok(())
}

async fn who_dies_keeps_the_others_out_for_its_time_and_no_longer(server: Place) -> Result<()> {
    let one = server.ours().await?;
    let mut theirs = server.theirs("a-java-service").await?;
    // Theirs: it never comes back.
    ensure!(theirs.lock("orders", Duration::from_secs(2)).await?, "it is not free");
    let kept = server.row("lock_until").await?;
    let guard = soon("our turn", one.mutex("orders")?.acquire()).await??;
    ensure!(server.is(&format!("locked_at >= timestamp '{kept}'")).await?, "it came in early");
    // Ours: nothing is given back.
    one.engine().close().await;
    let kept = server.row("lock_until").await?;
    theirs.lock_soon("orders", Duration::from_secs(1)).await?;
    ensure!(server.is(&format!("locked_at >= timestamp '{kept}'")).await?, "it came in early");
    drop(guard);
    let two = server.ours().await?;
    soon("our turn again", two.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

/// Older clients of ShedLock unlock by name alone, and people delete rows.
async fn whose_row_is_taken_away_is_told(server: Place) -> Result<()> {
    let (one, two) = (server.patient().await?, server.ours().await?);
    let mut theirs = server.theirs("a-java-service").await?;
    for taken in [
        format!("UPDATE shedlock SET lock_until = {} WHERE name = 'orders'", server.now()),
        "DELETE FROM shedlock".to_owned(),
        format!("UPDATE shedlock SET locked_by = 'me', lock_until = {}", server.in_seconds(1)),
    ] {
        let guard = soon("our turn", one.mutex("orders")?.acquire()).await??;
        server.sql(&taken).await?;
        let reason = soon("that it is lost", guard.lost()).await?;
        ensure!(
            matches!(&reason, LostReason::Evicted { reason } if reason.contains("ShedLock")),
            "told {reason:?} after {taken}"
        );
        ensure!(!guard.is_valid(), "it is lost, and valid");
        // Others need not wait for its claim, and it takes nothing from them.
        let next = soon("the next", two.mutex("orders")?.acquire()).await??;
        drop(guard);
        ensure!(!theirs.lock("orders", MINUTE).await?, "both hold");
        next.release().await?;
    }
    Ok(())
}

async fn an_unprotected_counter_loses_nothing(server: Place) -> Result<()> {
    const TURNS: usize = 60;
    let server = Arc::new(server);
    server.sql("CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)").await?;
    let mut tasks = JoinSet::new();
    for at in 0..3 {
        let (mine, yours) = (Arc::clone(&server), Arc::clone(&server));
        tasks.spawn(async move {
            let client = mine.ours().await?;
            let mut counter = mine.theirs("counts").await?;
            for _ in 0..TURNS {
                let guard = client.mutex("orders")?.acquire().await?;
                counter.count().await?;
                guard.release().await?;
            }
            anyhow::Ok(())
        });
        tasks.spawn(async move {
            let mut theirs = yours.theirs(&format!("host-{at}")).await?;
            for _ in 0..TURNS {
                theirs.lock_soon("orders", MINUTE).await?;
                theirs.count().await?;
                theirs.unlock("orders", Duration::ZERO).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let counted: usize = server.sql("SELECT n FROM counter").await?.trim().parse()?;
    ensure!(counted == 6 * TURNS, "{counted} of {} turns were counted", 6 * TURNS);
    ensure!(server.claims().await? == 0, "claims are left");
    ensure!(!server.is_held().await?, "the row is held after all");
    Ok(())
}

/// Also one that is dropped just when the row becomes free.
async fn a_wait_that_is_dropped_leaves_no_row_behind(server: Place) -> Result<()> {
    let one = server.ours().await?;
    let mut theirs = server.theirs("a-java-service").await?;
    for round in 0..20 {
        ensure!(theirs.lock("orders", MINUTE).await?, "round {round}: something was left behind");
        let lock = one.mutex("orders")?;
        let mut waits = Box::pin(lock.acquire());
        tokio::select! {
            _ = waits.as_mut() => anyhow::bail!("both hold"),
            seen = one_waits(&one) => seen?,
        }
        theirs.unlock("orders", Duration::ZERO).await?;
        let limit = Duration::from_millis(round * 2);
        // It may be granted by then, or be just about to.
        drop(tokio::time::timeout(limit, waits.as_mut()).await);
        drop(waits);
        theirs.lock_soon("orders", MINUTE).await?;
        until("its claim is gone", || async { Ok(one.show("orders").await?.waiters.is_empty()) }).await?;
        theirs.unlock("orders", Duration::ZERO).await?;
    }
    Ok(())
}

async fn whoever_holds_can_be_evicted_by_the_id_it_is_shown_with(server: Place) -> Result<()> {
    let (one, two) = (server.ours().await?, server.ours().await?);
    let mut theirs = server.theirs("a-java-service").await?;
    let guard = one.mutex("orders")?.acquire().await?;
    two.evict("orders", guard.claim_id(), "make room").await?;
    ensure!(theirs.lock("orders", MINUTE).await?, "an evicted claim keeps its row");
    soon("that it is lost", guard.lost()).await?;
    drop(guard);
    let seen = one.show("orders").await?;
    let holder = seen.holders.first().context("nobody is shown")?;
    one.evict("orders", holder.claim, "it hangs").await?;
    soon("our turn", two.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

/// Ends every connection of ours, again and again: what was asked and not answered is asked again, and takes a row once.
async fn connections_may_be_cut_at_any_step_and_no_row_is_left(server: Place) -> Result<()> {
    let (one, two) = (server.ours().await?, server.ours().await?);
    turns_while_cut(&one, &two, async || server.cut().await).await?;
    until("no claim is left, and no row held", || async {
        Ok(server.claims().await? == 0 && !server.is_held().await?)
    })
    .await
}

async fn a_crash_of_the_server_frees_no_row(server: Place) -> Result<()> {
    let one = palisade_testkit::trial::client(&server.url(), 30).await?;
    let guard = one.mutex("orders")?.acquire().await?;
    server.crash().await?;
    let mut theirs = server.theirs("a-java-service").await?;
    ensure!(!theirs.lock("orders", MINUTE).await?, "both hold");
    until("it decides again", || async { Ok(one.show("orders").await.is_ok()) }).await?;
    ensure!(guard.is_valid(), "it was lost");
    guard.release().await?;
    ensure!(theirs.lock("orders", MINUTE).await?, "what was released is not free");
    Ok(())
}

/// A transaction that keeps the row to itself holds up those who want it, and nobody else.
async fn a_row_that_is_locked_by_a_long_transaction_holds_up_nobody_else(server: Place) -> Result<()> {
    let one = server.ours().await?;
    one.mutex("orders")?.acquire().await?.release().await?;
    let mut theirs = server.theirs("a-java-service").await?;
    for statement in ["BEGIN", "SELECT name FROM shedlock WHERE name = 'orders' FOR UPDATE"] {
        theirs.raw(statement).await?;
    }
    let lock = one.mutex("orders")?;
    let mut waits = Box::pin(lock.acquire());
    let others = async {
        for _ in 0..5 {
            one.mutex("others")?.acquire().await?.release().await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        _ = waits.as_mut() => anyhow::bail!("it was granted though nobody could write the row"),
        done = soon("others' turns", others) => done??,
    }
    theirs.raw("COMMIT").await?;
    soon("our turn", waits).await??.release().await?;
    Ok(())
}

/// Its claim ends, and the next of ours has the row, while it waits for somebody's transaction: it has no more say.
async fn what_comes_late_takes_nothing_from_the_next_holder(server: Place) -> Result<()> {
    const ROUNDS: usize = 20;
    let (one, two) = (server.ours().await?, server.ours().await?);
    one.mutex("orders")?.acquire().await?.release().await?;
    let by = server.row("locked_by").await?;
    let mark = by.split(':').nth(1).context("a mark")?;
    let mut theirs = server.theirs("x").await?;
    for _ in 0..ROUNDS {
        let next = format!("palisade:{mark}:{}:{}", Token::MAX, ClaimId::random());
        theirs.raw("BEGIN").await?;
        let free = format!(
            "UPDATE shedlock SET locked_by = 'x', lock_until = {} WHERE name = 'orders'",
            server.now()
        );
        theirs.raw(&free).await?;
        let owner = Arc::new(Owner::this_process());
        let claim = Arc::new(Claim::new(Name::new("orders")?, Mode::Exclusive, Ttl::new(MINUTE)?, owner));
        let (engine, asked) = (Arc::clone(one.engine()), Arc::clone(&claim));
        let asking = tokio::spawn(async move { engine.claim(&asked).await });
        until("it waits for the row", || server.waits_for_a_row()).await?;
        // May wait for the row as well.
        let (engine, ended) = (Arc::clone(two.engine()), Arc::clone(&claim));
        let evicting =
            tokio::spawn(async move { engine.evict(&ended.resource, ended.id, "make room").await });
        until("its claim has ended", async || Ok(server.claims().await? == 0)).await?;
        let taken =
            format!("UPDATE shedlock SET locked_by = '{next}', lock_until = {}", server.in_seconds(60));
        theirs.raw(&taken).await?;
        let late = server.waits_for_a_row().await?;
        theirs.raw("COMMIT").await?;
        let said = soon("what became of it", asking).await??;
        soon("the eviction", evicting).await?.ok();
        ensure!(!matches!(said, Ok(Claimed::Granted(_))), "it was granted: {said:?}");
        let by = server.row("locked_by").await?;
        ensure!(by == next, "the row of the next holder is {by}");
        // Else it had given up waiting, and was about to ask again.
        if late {
            return Ok(());
        }
    }
    anyhow::bail!("it never waited until the next holder had the row")
}
