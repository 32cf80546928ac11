//! Servers that crash and stop, connections that are cut, statements that are undone.

use std::time::Duration;

use anyhow::{Result, ensure};
use palisade::{ClientBuilder, Clock, SystemClock};
use palisade_sql_trials::{client, postgres, soon, until};
use palisade_testkit::proxy::{Proxy, Weather};
use palisade_testkit::servers::PostgresServer;
use palisade_testkit::trial::{holders, outlive};

use crate::alike::turns_while_cut;

#[tokio::test]
async fn a_crash_keeps_what_is_held_and_tokens_rise() -> Result<()> {
    let server = postgres().await?;
    let client = ClientBuilder::default().ttl(Duration::from_secs(20)).connect(&server.url()).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    let lock = client.mutex("queued")?;
    let held = lock.acquire().await?;
    let other = palisade_sql_trials::client(&server.url()).await?;
    let queued = other.mutex("queued")?;
    let mut waiting = Box::pin(queued.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
        "two hold at once"
    );
    server.kill().await?;
    server.start_again(false).await?;
    until("it decides again", || async { Ok(client.show("orders").await.is_ok()) }).await?;
    ensure!(guard.is_valid(), "it was lost");
    ensure!(other.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    let before = guard.token();
    guard.release().await?;
    ensure!(other.mutex("orders")?.acquire().await?.token() > before, "the token fell");
    held.release().await?;
    soon("the turn of one who waited all the while", waiting).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_in_an_orderly_way_loses_no_hold() -> Result<()> {
    let server = postgres().await?;
    let (_clients, guards) = holders(&server.url(), 5).await?;
    server.terminate().await?;
    server.start_again(false).await?;
    outlive(&guards, SystemClock.now()).await?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// Ends every connection of ours, again and again, while locks are taken, waited for and given back.
#[tokio::test]
async fn connections_may_be_cut_at_any_step() -> Result<()> {
    let server = postgres().await?;
    let url = server.url();
    let (one, two) = (client(&url).await?, client(&url).await?);
    turns_while_cut(&one, &two, async || cut(&server).await).await?;
    until("nothing is left", || async {
        Ok(server.psql("SELECT count(*) FROM palisade.claim").await?.trim() == "0")
    })
    .await
}

pub(crate) async fn cut(server: &PostgresServer) -> Result<()> {
    server
        .psql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'palisade'")
        .await
        .map(drop)
}

#[tokio::test]
async fn a_connection_that_dies_in_silence_is_left() -> Result<()> {
    let server = postgres().await?;
    let proxy = Proxy::start(server.address()).await?;
    let through = format!("postgres://postgres@{}/postgres?call-timeout=1s", proxy.address());
    let one = ClientBuilder::default().ttl(Duration::from_secs(10)).connect(&through).await?;
    let two = client(&server.url()).await?;
    let guard = two.mutex("orders")?.acquire().await?;
    let lock = one.mutex("orders")?;
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
        "two hold at once"
    );
    proxy.set(Weather::Silent);
    guard.release().await?;
    // Told to nobody: it is asked after when there is a connection again.
    let struck = tokio::time::timeout(Duration::from_secs(3), &mut waiting).await;
    ensure!(struck.is_err(), "something came through");
    proxy.set(Weather::Clear);
    soon("the turn", waiting).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn statements_that_are_undone_are_sent_again() -> Result<()> {
    let server = postgres().await?;
    client(&server.url()).await?.close().await;
    // Whoever is in the way of a statement for longer than a second has it undone, whatever a role is set to.
    server.psql("CREATE USER app; GRANT USAGE ON SCHEMA palisade TO app; ALTER ROLE app SET lock_timeout = '20ms'").await?;
    let app = client(&format!("postgres://app@{}/postgres", server.address())).await?;
    let key = server.psql("SELECT palisade.key_of('', 'orders')").await?;
    app.mutex("orders")?.acquire().await?.release().await?;
    let lock = app.mutex("orders")?;
    let blocked = format!("SELECT pg_advisory_lock({}), pg_sleep(2)", key.trim());
    let taking = async {
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
        until("somebody is in the way", async || Ok(server.psql(held).await?.trim() == "1")).await?;
        anyhow::Ok(soon("the lock", lock.acquire()).await??)
    };
    let (in_the_way, taken) = futures::join!(server.psql(&blocked), taking);
    in_the_way?;
    taken?.release().await?;
    Ok(())
}

#[tokio::test]
async fn an_expired_holder_lets_the_next_in() -> Result<()> {
    let server = postgres().await?;
    let one = client(&server.url()).await?;
    let guard = one.mutex("orders")?.acquire().await?;
    let two = client(&server.url()).await?;
    let lock = two.mutex("orders")?;
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
        "two hold at once"
    );
    let before = guard.token();
    // Its client is gone without a word.
    std::mem::forget(guard);
    one.engine().close().await;
    let next = soon("the turn", waiting).await??;
    ensure!(next.token() > before, "the token fell");
    Ok(())
}
