//! A MariaDB that crashes, is read-only, cuts connections, undoes statements.

use std::time::Duration;

use anyhow::{Result, ensure};
use palisade::{ClientBuilder, Clock, ErrorKind, SystemClock};
use palisade_sql_trials::{client, mariadb, refusal, soon, until};
use palisade_testkit::proxy::{Proxy, Weather};
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer};
use palisade_testkit::trial::{holders, outlive};

use crate::alike::turns_while_cut;

#[tokio::test]
async fn a_crash_keeps_what_is_held_and_tokens_rise() -> Result<()> {
    let server = mariadb().await?;
    let one = ClientBuilder::default().ttl(Duration::from_secs(20)).connect(&server.url()).await?;
    let two = ClientBuilder::default().ttl(Duration::from_secs(20)).connect(&server.url()).await?;
    let guard = one.mutex("orders")?.acquire().await?;
    let held = one.mutex("queued")?.acquire().await?;
    let queued = two.mutex("queued")?;
    let mut waiting = Box::pin(queued.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
        "two hold at once"
    );
    server.kill().await?;
    server.start_again(false).await?;
    until("it decides again", || async { Ok(one.show("orders").await.is_ok()) }).await?;
    ensure!(guard.is_valid(), "it was lost");
    ensure!(two.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    let before = guard.token();
    guard.release().await?;
    ensure!(two.mutex("orders")?.acquire().await?.token() > before, "the token fell");
    held.release().await?;
    soon("the turn of one who waited all the while", waiting).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_in_an_orderly_way_loses_no_hold() -> Result<()> {
    let server = mariadb().await?;
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
    let server = mariadb().await?;
    server.sql("CREATE USER app; GRANT ALL ON palisade.* TO app").await?;
    let url = format!("mysql://app@{}/palisade", server.address());
    let (one, two) = (client(&url).await?, client(&url).await?);
    let cut = async || server.sql("KILL CONNECTION USER app").await.map(drop);
    turns_while_cut(&one, &two, cut).await?;
    until("nothing is left", || async {
        Ok(server.sql("SELECT COUNT(*) FROM palisade_claim").await?.trim() == "0")
    })
    .await
}

#[tokio::test]
async fn a_connection_that_dies_in_silence_is_left() -> Result<()> {
    let server = mariadb().await?;
    let proxy = Proxy::start(server.address()).await?;
    let through = format!("mysql://root@{}/palisade?call-timeout=1s", proxy.address());
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
    let struck = tokio::time::timeout(Duration::from_secs(3), &mut waiting).await;
    ensure!(struck.is_err(), "something came through");
    proxy.set(Weather::Clear);
    soon("the turn", waiting).await??.release().await?;
    Ok(())
}

/// A connection that the server ends because nothing was said over it is no reason to lose anything.
#[tokio::test]
async fn connections_that_have_nothing_to_do_are_not_ended() -> Result<()> {
    let args = vec!["--wait-timeout=1".to_owned(), "--interactive-timeout=1".to_owned()];
    let server = MariaDbServer::start(MariaDbOptions { args, ..MariaDbOptions::default() }).await?;
    let client = palisade::connect(&server.url()).await?;
    let ids = async || {
        server.sql("SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE db = 'palisade' AND id <> CONNECTION_ID()").await
    };
    let before = ids().await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(ids().await? == before, "the connection was ended");
    client.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

/// Who is in the way for longer than a lock is waited for has a statement undone: it is sent again.
#[tokio::test]
async fn statements_that_are_undone_are_sent_again() -> Result<()> {
    let server = mariadb().await?;
    let app = client(&server.url()).await?;
    app.mutex("orders")?.acquire().await?.release().await?;
    let blocked = "BEGIN; SELECT COUNT(*) FROM palisade_lane FOR UPDATE; DO SLEEP(4); ROLLBACK";
    let lock = app.mutex("orders")?;
    let taking = async {
        // What InnoDB says of transactions is old as long as somebody keeps asking.
        let held = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'";
        until("somebody is in the way", async || Ok(server.sql(held).await?.trim() == "1")).await?;
        anyhow::Ok(soon("the lock", lock.acquire()).await??)
    };
    let (in_the_way, taken) = futures::join!(server.sql(blocked), taking);
    in_the_way?;
    taken?.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_may_not_be_written_to_is_refused_and_left() -> Result<()> {
    let server = mariadb().await?;
    let one = client(&server.url()).await?;
    one.mutex("orders")?.acquire().await?.release().await?;
    server.sql("CREATE USER app; GRANT EXECUTE ON palisade.* TO app; SET GLOBAL read_only = 1").await?;
    let url = format!("mysql://app@{}/palisade", server.address());
    let error = refusal(&url).await?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("replica"), "{error:?}");
    server.sql("SET GLOBAL read_only = 0").await?;
    client(&url).await?.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

/// What a server and its sessions are set to must not change what is decided.
#[tokio::test]
async fn settings_do_not_weaken_what_is_promised() -> Result<()> {
    let args = [
        "--transaction-isolation=REPEATABLE-READ",
        "--sql-mode=",
        "--character-set-server=latin1",
        "--collation-server=latin1_german1_ci",
        "--default-time-zone=+05:30",
        "--autocommit=0",
        "--group-concat-max-len=8",
        "--lower-case-table-names=1",
    ];
    let args = args.map(str::to_owned).to_vec();
    let server = MariaDbServer::start(MariaDbOptions { args, ..MariaDbOptions::default() }).await?;
    let (one, two) = (client(&server.url()).await?, client(&server.url()).await?);
    let (upper, lower) = (one.mutex("Straße 🚲")?.acquire().await?, one.mutex("straße 🚲")?.acquire().await?);
    ensure!(two.mutex("Straße 🚲")?.try_acquire().await?.is_none(), "two hold at once");
    let lock = two.mutex("Straße 🚲")?;
    let (released, next) = futures::join!(upper.release(), lock.acquire());
    released?;
    ensure!(next?.token() > lower.token(), "the token fell");
    Ok(())
}

#[tokio::test]
async fn an_expired_holder_lets_the_next_in() -> Result<()> {
    let server = mariadb().await?;
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
