//! Session locks of MariaDB: who they exclude, what they are told, and what they refuse.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use palisade::{Client, Condition, ErrorKind};
use palisade_core::Liveness;
use palisade_sql_trials::{SECRET, client, soon, until};
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer};

/// A server that says who holds and waits for locks.
pub(crate) async fn server() -> Result<MariaDbServer> {
    let args = ["--performance-schema=ON", "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON"];
    let args = args.map(str::to_owned).to_vec();
    MariaDbServer::start(MariaDbOptions { args, ..MariaDbOptions::default() }).await
}

/// A client of session locks with claims of three seconds.
pub(crate) async fn sessions(server: &MariaDbServer) -> Result<Client> {
    client(&format!("{}?mode=advisory", server.url())).await
}

/// How many locks of resources are held, and how many are waited for.
pub(crate) async fn locks(server: &MariaDbServer) -> Result<(u32, u32)> {
    // Whatever limits a test gives the server: they are not for who looks on.
    let counted = "SET STATEMENT max_statement_time = 0 FOR SELECT COUNT(IF(lock_status = 'GRANTED', 1, NULL)), COUNT(IF(lock_status = 'PENDING', 1, NULL)) \
                   FROM performance_schema.metadata_locks WHERE object_name LIKE 'palisade.%.%'";
    let said = server.sql(counted).await?;
    let (held, waiting) = said.trim().split_once('\t').context("two numbers")?;
    Ok((held.parse()?, waiting.parse()?))
}

#[tokio::test]
async fn what_cannot_be_promised_is_said() -> Result<()> {
    let server = server().await?;
    let client = sessions(&server).await?;
    let profile = client.engine().profile();
    ensure!(profile.liveness == Liveness::Connection && !profile.evict);
    ensure!(!profile.modes.slots && !profile.modes.shared);
    let refused = [
        match client.semaphore("seats", 3) {
            Ok(semaphore) => semaphore.try_acquire().await.err(),
            Err(error) => Some(error),
        },
        match client.rw_lock("orders") {
            Ok(lock) => lock.try_read().await.err(),
            Err(error) => Some(error),
        },
    ];
    for refused in refused {
        ensure!(refused.is_some_and(|error| error.kind() == ErrorKind::Unsupported), "it was granted");
    }
    let guard = client.mutex("orders")?.acquire().await?;
    let refused = client.evict("orders", guard.claim_id(), "for a try").await.err();
    ensure!(refused.is_some_and(|error| error.kind() == ErrorKind::Unsupported), "it was evicted");
    ensure!(guard.is_valid(), "it was lost");
    Ok(())
}

/// MySQL's table of processes cannot be read while there is such a statement.
#[tokio::test]
async fn whatever_others_ask_the_server_who_waits_is_seen() -> Result<()> {
    let server = MariaDbServer::start(MariaDbOptions::mysql()?).await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    let crabs = server.sql("SET NAMES utf8mb4; SELECT SLEEP(60), '🦀🦀🦀'");
    let turn = async {
        until("the statement runs", || async {
            Ok(server.sql("SHOW PROCESSLIST").await?.contains("SLEEP(60)"))
        })
        .await?;
        let (guard, lock) = (one.mutex("orders")?.acquire().await?, two.mutex("orders")?);
        let mut waiting = Box::pin(lock.acquire());
        let waits =
            until("it is seen to wait", || async { Ok(one.show("orders").await?.waiters.len() == 1) });
        let waits = std::pin::pin!(waits);
        match futures::future::select(&mut waiting, waits).await {
            futures::future::Either::Left(_) => bail!("two hold at once, or it may not wait"),
            futures::future::Either::Right((waits, _)) => waits?,
        }
        guard.release().await?;
        soon("the turn", waiting).await??.release().await?;
        Ok(())
    };
    tokio::select! {
        ended = crabs => bail!("the statement ended: {ended:?}"),
        turn = turn => turn,
    }
}

/// MySQL takes no longer names than 64 characters, and none that differ in case only.
#[tokio::test]
async fn names_are_neither_cut_nor_folded() -> Result<()> {
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    let long = "x".repeat(200);
    let names = [format!("{long}a"), format!("{long}b"), format!("{long}B"), long];
    let names = names.iter().map(String::as_str).chain(["orders", "Orders", "ORDERS", "orders ", "örders"]);
    let mut guards = Vec::new();
    for name in names {
        let guard = soon("a lock of its own", one.mutex(name)?.try_acquire()).await??;
        guards.push(guard.with_context(|| format!("{name:?} is another's"))?);
        ensure!(two.mutex(name)?.try_acquire().await?.is_none(), "two hold {name:?} at once");
    }
    ensure!(locks(&server).await?.0 as usize == guards.len(), "two names share a lock");
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn databases_and_namespaces_do_not_see_each_other() -> Result<()> {
    let server = server().await?;
    server.sql("CREATE DATABASE other").await?;
    let one = sessions(&server).await?;
    let other = client(&format!("mysql://root@{}/other?mode=advisory", server.address())).await?;
    let tenant = client(&format!("{}?mode=advisory&namespace=tenant", server.url())).await?;
    let rows = client(&server.url()).await?;
    let _held = one.mutex("orders")?.acquire().await?;
    ensure!(other.mutex("orders")?.try_acquire().await?.is_some(), "databases share a lock");
    ensure!(tenant.mutex("orders")?.try_acquire().await?.is_some(), "namespaces share a lock");
    ensure!(tenant.show("orders").await?.holders.is_empty(), "a namespace sees another");
    ensure!(one.engine().source() != other.engine().source(), "their tokens do not compare");
    ensure!(one.engine().source() != rows.engine().source(), "lease rows count by themselves");
    Ok(())
}

#[tokio::test]
async fn a_token_is_drawn_once_the_lock_is_held() -> Result<()> {
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    for _ in 0..5 {
        let guard = one.mutex("orders")?.acquire().await?;
        let lock = two.mutex("orders")?;
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until("it waits", || async { Ok(locks(&server).await?.1 == 1) }).await?;
        // Drawn after it began to wait, and before it is let in.
        let between = one.mutex("other")?.acquire().await?;
        guard.release().await?;
        let next = soon("the turn", waiting).await???;
        ensure!(next.token() > between.token(), "its token was drawn before it held");
        next.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn connections_have_a_bound_that_is_named() -> Result<()> {
    let server = server().await?;
    let holder = sessions(&server).await?;
    let guard = holder.mutex("orders")?.acquire().await?;
    let few = client(&format!("{}?mode=advisory&connections=3", server.url())).await?;
    let locks_of = |count: usize| (0..count).map(|_| few.mutex("orders")).collect::<Result<Vec<_>, _>>();
    let (waiting, one_more) = (locks_of(3)?, few.mutex("orders")?);
    let tasks: Vec<_> = waiting
        .into_iter()
        .map(|lock| tokio::spawn(async move { lock.acquire().await?.release().await }))
        .collect();
    until("three wait", || async { Ok(locks(&server).await?.1 == 3) }).await?;
    let Err(error) = soon("an answer", one_more.acquire()).await? else {
        anyhow::bail!("four wait over three")
    };
    ensure!(error.kind() == ErrorKind::Full && error.to_string().contains("connections"), "{error}");
    guard.release().await?;
    for task in tasks {
        soon("a turn", task).await???;
    }
    until("nothing is left", || async { Ok(locks(&server).await? == (0, 0)) }).await
}

/// With EXECUTE alone tokens are drawn by a procedure; with rights on the sequence, by the statement that takes the lock.
#[tokio::test]
async fn a_user_who_may_only_execute_can_do_everything() -> Result<()> {
    let server = server().await?;
    server.sql(&palisade::mysql_schema()).await?;
    server
        .sql(&format!(
            "CREATE USER app IDENTIFIED BY '{SECRET}'; GRANT EXECUTE ON palisade.* TO app; \
             CREATE USER quick IDENTIFIED BY '{SECRET}'; GRANT EXECUTE ON palisade.* TO quick; \
             GRANT SELECT, INSERT ON palisade.palisade_number TO quick"
        ))
        .await?;
    let url = |user: &str| format!("mysql://{user}:{SECRET}@{}/palisade?mode=advisory", server.address());
    let (one, two) = (client(&url("app")).await?, client(&url("quick")).await?);
    for (one, two) in [(&one, &two), (&two, &one)] {
        let guard = one.mutex("orders")?.acquire().await?;
        let lock = two.mutex("orders")?;
        let mut waiting = Box::pin(lock.acquire());
        ensure!(
            tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err(),
            "two hold at once"
        );
        let shown = one.show("orders").await?;
        ensure!((shown.holders.len(), shown.waiters.len()) == (1, 1), "shown as {shown:?}");
        ensure!(shown.holders[0].token == Some(guard.token()), "shown as {shown:?}");
        let first = guard.token();
        guard.release().await?;
        let next = soon("the turn", waiting).await??;
        ensure!(next.token() > first, "the token fell");
        next.release().await?;
        // And a wait that is given up: whoever owns a session may stop what runs there.
        let guard = one.mutex("orders")?.acquire().await?;
        ensure!(two.mutex("orders")?.acquire_within(Duration::from_millis(100)).await?.is_none());
        until("nobody waits", || async { Ok(locks(&server).await? == (1, 0)) }).await?;
        guard.release().await?;
    }
    one.register("note")?.write("x", Condition::always()).await?;
    Ok(())
}

#[tokio::test]
async fn a_schema_of_the_first_version_is_brought_up_to_date() -> Result<()> {
    let server = server().await?;
    sessions(&server).await?.close().await;
    server
        .sql(
            "DROP TABLE palisade_session, palisade_lifted, palisade_run; DROP SEQUENCE palisade_number; DROP PROCEDURE palisade_lift; \
             DROP PROCEDURE palisade_sit; DROP PROCEDURE palisade_take; DROP PROCEDURE palisade_session_token; DROP PROCEDURE palisade_note; \
             DROP PROCEDURE palisade_sessions; DROP PROCEDURE palisade_sweep_sessions; UPDATE palisade_meta SET version = 1",
        )
        .await?;
    sessions(&server).await?.mutex("orders")?.acquire().await?.release().await?;
    let version = server.sql("SELECT version FROM palisade_meta").await?;
    ensure!(version.trim() == "2", "it is {version}");
    Ok(())
}

/// A backup has to stop those who write: who waits for a lock writes nothing.
#[tokio::test]
async fn who_waits_is_in_the_way_of_no_backup() -> Result<()> {
    let server = server().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    let lock = two.mutex("orders")?;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", || async { Ok(locks(&server).await?.1 == 1) }).await?;
    soon("a backup", server.sql("FLUSH TABLES WITH READ LOCK; UNLOCK TABLES")).await??;
    guard.release().await?;
    soon("the turn", waiting).await???.release().await?;
    Ok(())
}
