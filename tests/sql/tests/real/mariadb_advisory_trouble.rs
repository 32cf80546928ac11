//! What befalls session locks of MariaDB: connections that end, statements that are undone, waits that nobody wants any more.

use std::time::Duration;

use anyhow::{Result, ensure};
use palisade::{ClientBuilder, ErrorKind, LostReason, Released};
use palisade_sql_trials::{client, refusal, soon, until};
use palisade_testkit::proxy::{Proxy, Weather};
use palisade_testkit::servers::MariaDbServer;

use crate::alike::{
    a_dropped_release_concerns_no_other, a_holder_whose_connection_ends_is_told, session_turns_while_cut,
};
use crate::mariadb_advisory::{locks, server, sessions};
use crate::multiplexer::Multiplexer;

/// Ends all connections to the database but those of its own.
pub(crate) async fn cut(server: &MariaDbServer) -> Result<()> {
    let all = "SELECT GROUP_CONCAT(CONCAT('KILL ', id) SEPARATOR '; ') FROM information_schema.processlist \
               WHERE db = 'palisade' AND id <> CONNECTION_ID()";
    let kills = server.sql(all).await?;
    for kill in kills.trim().split("; ").filter(|kill| kill.starts_with("KILL")) {
        // One that has ended meanwhile is no more.
        if let Err(error) = server.sql(kill).await {
            ensure!(format!("{error:#}").contains("Unknown thread"), "{error:#}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_holder_whose_connection_ends_is_told_and_nothing_is_taken_again() -> Result<()> {
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    a_holder_whose_connection_ends_is_told(&one, &two, async || cut(&server).await).await
}

#[tokio::test]
async fn connections_may_be_cut_at_any_step() -> Result<()> {
    const TURNS: u32 = 40;
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    session_turns_while_cut(&one, &two, TURNS, async || cut(&server).await).await?;
    until("nothing is left", || async { Ok(locks(&server).await? == (0, 0)) }).await?;
    until("nothing is noted", || async {
        Ok(server.sql("SELECT COUNT(*) FROM palisade_session").await?.trim() == "0")
    })
    .await
}

#[tokio::test]
async fn limits_of_a_server_do_not_end_a_wait() -> Result<()> {
    let server = server().await?;
    server
        .sql("SET GLOBAL max_statement_time = 0.1, GLOBAL wait_timeout = 1, GLOBAL lock_wait_timeout = 1")
        .await?;
    let (holder, app) = (sessions(&server).await?, sessions(&server).await?);
    let guard = holder.mutex("orders")?.acquire().await?;
    let lock = app.mutex("orders")?;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", || async { Ok(locks(&server).await? == (1, 1)) }).await?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    ensure!(!waiting.is_finished(), "two hold at once");
    ensure!(locks(&server).await? == (1, 1), "it does not wait any more");
    guard.release().await?;
    let guard = soon("the turn", waiting).await???;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    ensure!(guard.release().await? == Released::InTime, "its session ended for its silence");
    Ok(())
}

/// A statement that is undone while it waits, or just when it is let in, may leave the lock held: nobody would know.
#[tokio::test]
async fn a_wait_that_the_server_undoes_leaves_no_lock() -> Result<()> {
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    for _ in 0..5 {
        let guard = one.mutex("orders")?.acquire().await?;
        let lock = two.mutex("orders")?;
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until("it waits", || async { Ok(locks(&server).await?.1 == 1) }).await?;
        let waits =
            server.sql("SELECT id FROM information_schema.processlist WHERE state = 'User lock'").await?;
        let undone = format!("KILL QUERY {}", waits.trim());
        let (cancelled, released) = futures::join!(server.sql(&undone), guard.release());
        cancelled?;
        released?;
        soon("the turn", waiting).await???.release().await?;
        until("nothing is left", || async { Ok(locks(&server).await? == (0, 0)) }).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_that_is_given_up_ends_in_the_server_too() -> Result<()> {
    let server = server().await?;
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

/// A client that is closed leaves nobody in line.
#[tokio::test]
async fn who_is_closed_while_it_waits_waits_no_more() -> Result<()> {
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    let lock = two.mutex("orders")?;
    let waiting = tokio::spawn(async move { lock.acquire().await.err() });
    until("it waits", || async { Ok(locks(&server).await?.1 == 1) }).await?;
    two.engine().close().await;
    soon("the end of the wait", waiting).await??;
    until("nobody waits", || async { Ok(locks(&server).await? == (1, 0)) }).await?;
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn what_has_numbers_of_its_own_for_sessions_is_refused() -> Result<()> {
    let server = server().await?;
    let proxy = Multiplexer::start(server.address(), true).await?;
    let error = refusal(&format!("mysql://root@{}/palisade?mode=advisory", proxy.address())).await?;
    ensure!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("pooler"), "{error}");
    Ok(())
}

/// A pooler that gives a client the session of another is found by what a session has, and nothing is held over it any more.
#[tokio::test]
async fn a_session_that_is_another_is_noticed() -> Result<()> {
    let server = server().await?;
    let proxy = Multiplexer::start(server.address(), false).await?;
    let one = client(&format!("mysql://root@{}/palisade?mode=advisory", proxy.address())).await?;
    let guard = one.mutex("orders")?.acquire().await?;
    proxy.swap();
    soon("the loss", guard.lost()).await?;
    ensure!(!guard.is_valid(), "it calls itself valid");
    drop(one);
    let two = sessions(&server).await?;
    soon("the next turn", two.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_connection_that_dies_in_silence_frees_after_a_ttl() -> Result<()> {
    let server = server().await?;
    let proxy = Proxy::start(server.address()).await?;
    let through = format!("mysql://root@{}/palisade?mode=advisory&call-timeout=1s", proxy.address());
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
    let server = server().await?;
    let one = sessions(&server).await?;
    // Numbers that the server keeps in its memory only, given just before it is no more.
    let mut last = None;
    for _ in 0..3 {
        let mut guard = soon("a turn", one.mutex("orders")?.acquire()).await??;
        for _ in 0..50 {
            ensure!(last < Some(guard.token()), "{} came after {last:?}", guard.token());
            last = Some(guard.token());
            guard.release().await?;
            guard = one.mutex("orders")?.acquire().await?;
        }
        last = Some(guard.token());
        server.kill().await?;
        let why = soon("the loss", guard.lost()).await?;
        ensure!(why == LostReason::SessionLost, "it was lost because of {why:?}");
        server.start_again(false).await?;
        until("it decides again", || async { Ok(one.mutex("other")?.acquire().await.is_ok()) }).await?;
    }
    Ok(())
}

/// The sequence is not on the disk yet when its numbers are told, so that a clock that is set back must not matter, either.
#[tokio::test]
async fn tokens_rise_over_a_crash_after_which_the_clock_is_behind() -> Result<()> {
    use palisade_testkit::servers::MariaDbOptions;
    let server = MariaDbServer::start(MariaDbOptions { clock: true, ..MariaDbOptions::default() }).await?;
    let one = sessions(&server).await?;
    let guard = one.mutex("orders")?.acquire().await?;
    let before = guard.token();
    server.kill().await?;
    server.shift_clock(-3600)?;
    server.start_again(false).await?;
    let two = client(&format!("{}?mode=advisory", server.url())).await?;
    let next = soon("a turn after the crash", two.mutex("orders")?.acquire()).await??;
    ensure!(next.token() > before, "{} came after {before}", next.token());
    next.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_release_that_nobody_waits_for_concerns_no_other_lock() -> Result<()> {
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    a_dropped_release_concerns_no_other(&one, &two).await
}
