//! What befalls session locks: connections that end, statements that are undone, waits that nobody wants any more.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Result, ensure};
use palisade::{ClientBuilder, LostReason, Released};
use palisade_sql_trials::{client, postgres, soon, until};
use palisade_testkit::proxy::{Proxy, Weather};
use palisade_testkit::servers::{PostgresOptions, PostgresServer};

use crate::advisory::{locks, sessions};
use crate::alike::{
    a_dropped_release_concerns_no_other, a_holder_whose_connection_ends_is_told, session_turns_while_cut,
};

/// Ends all connections that hold or wait.
async fn cut(server: &PostgresServer) -> Result<()> {
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'palisade/%'";
    server.psql(ended).await.map(drop)
}

#[tokio::test]
async fn a_holder_whose_connection_ends_is_told_and_nothing_is_taken_again() -> Result<()> {
    let server = postgres().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    a_holder_whose_connection_ends_is_told(&one, &two, async || cut(&server).await).await
}

#[tokio::test]
async fn connections_may_be_cut_at_any_step() -> Result<()> {
    const TURNS: u32 = 60;
    let server = postgres().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    session_turns_while_cut(&one, &two, TURNS, async || cut(&server).await).await?;
    until("nothing is left", || async { Ok(locks(&server).await? == (0, 0)) }).await?;
    until("nothing is noted", || async {
        Ok(server.psql("SELECT count(*) FROM palisade.session").await?.trim() == "0")
    })
    .await
}

#[tokio::test]
async fn limits_of_a_role_do_not_end_a_wait() -> Result<()> {
    let server = postgres().await?;
    client(&server.url()).await?.close().await;
    server
        .psql(
            "CREATE USER app; GRANT USAGE ON SCHEMA palisade TO app; ALTER ROLE app SET lock_timeout = '30ms'; \
             ALTER ROLE app SET statement_timeout = '60ms'; ALTER ROLE app SET idle_session_timeout = '100ms'",
        )
        .await?;
    let holder = sessions(&server).await?;
    let guard = holder.mutex("orders")?.acquire().await?;
    let app = client(&format!("postgres://app@{}/postgres?mode=advisory", server.address())).await?;
    let lock = app.mutex("orders")?;
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(600), &mut waiting).await.is_err(),
        "two hold at once"
    );
    ensure!(locks(&server).await? == (1, 1), "it does not wait any more");
    guard.release().await?;
    let guard = soon("the turn", waiting).await??;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(guard.release().await? == Released::InTime, "its session ended for its silence");
    Ok(())
}

/// A statement that is undone while it waits, or just when it is let in, may leave the lock held: nobody would know.
#[tokio::test]
async fn a_wait_that_the_server_undoes_leaves_no_lock() -> Result<()> {
    let server = postgres().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    for _ in 0..5 {
        let guard = one.mutex("orders")?.acquire().await?;
        let lock = two.mutex("orders")?;
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until("it waits", || async { Ok(locks(&server).await?.1 == 1) }).await?;
        let undone =
            "SELECT count(pg_cancel_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        let (cancelled, released) = futures::join!(server.psql(undone), guard.release());
        cancelled?;
        released?;
        soon("the turn", waiting).await???.release().await?;
        ensure!(locks(&server).await? == (0, 0), "a lock was left behind");
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_that_is_given_up_ends_in_the_server_too() -> Result<()> {
    let server = postgres().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    let lock = two.mutex("orders")?;
    for round in 0..10 {
        let guard = one.mutex("orders")?.acquire().await?;
        // Given up long before, and at about the moment of the grant.
        let limit = Duration::from_millis(if round % 2 == 0 { 30 } else { 200 });
        let (obtained, released) = futures::join!(lock.acquire_within(limit), async {
            if round % 2 == 1 {
                tokio::time::sleep(limit).await;
            } else {
                tokio::time::sleep(limit * 2).await;
            }
            guard.release().await
        });
        released?;
        if let Some(guard) = obtained? {
            guard.release().await?;
        }
        until("nothing is left", || async { Ok(locks(&server).await? == (0, 0)) }).await?;
    }
    // A future that is dropped is as good.
    let guard = one.mutex("orders")?.acquire().await?;
    ensure!(
        tokio::time::timeout(Duration::from_millis(100), lock.acquire()).await.is_err(),
        "two hold at once"
    );
    until("nobody waits", || async { Ok(locks(&server).await? == (1, 0)) }).await?;
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_connection_that_dies_in_silence_frees_after_a_ttl() -> Result<()> {
    let server = postgres().await?;
    let proxy = Proxy::start(server.address()).await?;
    let through = format!("postgres://postgres@{}/postgres?mode=advisory&call-timeout=1s", proxy.address());
    let one = ClientBuilder::default().ttl(Duration::from_secs(2)).connect(&through).await?;
    let two = sessions(&server).await?;
    let guard = one.mutex("orders")?.acquire().await?;
    let token = guard.token();
    proxy.set(Weather::Silent);
    // The server hears nothing of it, and ends the session after a TTL; not before the holder knows.
    let next = soon("the turn", two.mutex("orders")?.acquire()).await??;
    ensure!(!guard.is_valid(), "two hold at once");
    ensure!(next.token() > token, "the token fell");
    proxy.set(Weather::Clear);
    soon("the loss", guard.lost()).await?;
    next.release().await?;
    drop(guard);
    soon("the first one's turn", one.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_crash_frees_what_is_held_and_tokens_rise() -> Result<()> {
    let server = postgres().await?;
    let one = sessions(&server).await?;
    let guard = one.mutex("orders")?.acquire().await?;
    let token = guard.token();
    server.kill().await?;
    let why = soon("the loss", guard.lost()).await?;
    ensure!(why == LostReason::SessionLost, "it was lost because of {why:?}");
    server.start_again(false).await?;
    let next = soon("a turn after the crash", one.mutex("orders")?.acquire()).await??;
    // Of those that were told last, the server may have forgotten some.
    ensure!(next.token().get() > token.get() + (1 << 20), "{} after {token}", next.token());
    next.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_downgrade_that_nobody_waits_for_leaves_no_lock_behind() -> Result<()> {
    let server = postgres().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    let kept = one.mutex("kept")?.acquire().await?;
    for _ in 0..20 {
        let guard = one.rw_lock("orders")?.write().await?;
        // It is sent, and its answer is not waited for.
        let mut change = Box::pin(guard.downgrade());
        let done = poll_fn(|context| Poll::Ready(change.as_mut().poll(context).is_ready())).await;
        ensure!(!done, "it is done already");
        drop(change);
        soon("a turn after it", two.rw_lock("orders")?.write()).await??.release().await?;
    }
    ensure!(kept.is_valid(), "another lock of the same client was lost by it");
    Ok(())
}

/// A server whose clock went back behind its own start is one that has just started, not one that speaks of something else.
#[tokio::test]
async fn a_clock_that_goes_back_keeps_nobody_out() -> Result<()> {
    let server = PostgresServer::start(PostgresOptions { clock: true, ..PostgresOptions::default() }).await?;
    let guard = sessions(&server).await?.mutex("orders")?.acquire().await?;
    server.shift_clock(-3600)?;
    let other = sessions(&server).await?;
    ensure!(other.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    let token = guard.token();
    guard.release().await?;
    let next = soon("the next turn", other.mutex("orders")?.acquire()).await??;
    ensure!(next.token() > token, "the token fell");
    // Lease rows are of the same server.
    client(&server.url()).await?.mutex("bills")?.acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_release_that_nobody_waits_for_concerns_no_other_lock() -> Result<()> {
    let server = postgres().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    a_dropped_release_concerns_no_other(&one, &two).await
}
