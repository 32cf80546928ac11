//! One statement that is blocked, or one connection that is lost, concerns nobody else.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use palisade::{Client, ClientBuilder};
use palisade_sql_trials::{client, postgres, soon, until};
use palisade_testkit::servers::PostgresServer;

/// How many connections a client has at most: those to ask, and the one to listen.
const MOST: usize = 5;

/// The server's processes that serve us, in order.
async fn backends(server: &PostgresServer) -> Result<Vec<String>> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'palisade' ORDER BY pid";
    Ok(server.psql(sql).await?.lines().map(str::to_owned).collect())
}

/// A client whose calls take four seconds at most: one that comes behind a blocked one waits a second for it.
async fn hasty(server: &PostgresServer) -> Result<Client> {
    let url = format!("{}?call-timeout=4s", server.url());
    Ok(ClientBuilder::default().ttl(Duration::from_mins(1)).connect(&url).await?)
}

/// Has somebody be in the way of `blocked` with a statement that `hinders`, for longer than calls take.
async fn others_go_on(server: &PostgresServer, hinders: &str, blocked: &str) -> Result<()> {
    const LONG: Duration = Duration::from_secs(9);
    let one = hasty(server).await?;
    let held = one.mutex("held")?.acquire().await?;
    let before = backends(server).await?;
    let hindrance = format!("BEGIN; {hinders}; SELECT pg_sleep({}); COMMIT", LONG.as_secs());
    let in_the_way = server.psql(&hindrance);
    let work = async {
        let sleeps =
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'";
        until("somebody is in the way", async || Ok(server.psql(sleeps).await?.trim() == "1")).await?;
        let begun = Instant::now();
        let lock = one.mutex(blocked)?;
        let taking = tokio::spawn(async move {
            loop {
                // Told as it is: not in time, and without effect or in doubt. It may be asked for again.
                match lock.acquire().await {
                    Ok(guard) => return guard,
                    Err(error) => ensure_transient(&error),
                }
            }
        });
        let mut turns = 0;
        while begun.elapsed() < LONG {
            soon("a lock that nobody is in the way of", one.mutex("free")?.acquire())
                .await??
                .release()
                .await?;
            turns += 1;
        }
        ensure!(turns > 5, "others had {turns} turns");
        ensure!(held.is_valid(), "what was held was lost");
        let guard = soon("the blocked one", taking).await??;
        guard.release().await?;
        let after = backends(server).await?;
        ensure!(
            before.iter().all(|pid| after.contains(pid)),
            "connections were given up: {before:?} {after:?}"
        );
        ensure!(after.len() <= MOST, "{} connections", after.len());
        anyhow::Ok(())
    };
    let (in_the_way, worked) = futures::join!(in_the_way, work);
    in_the_way?;
    worked?;
    held.release().await?;
    one.close().await;
    until("nobody is left behind", async || Ok(backends(server).await?.is_empty())).await
}

fn ensure_transient(error: &palisade::Error) {
    assert!(error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn a_resource_that_is_locked_by_hand_is_in_nobody_elses_way() -> Result<()> {
    let server = postgres().await?;
    client(&server.url()).await?.close().await;
    others_go_on(&server, "SELECT pg_advisory_xact_lock(palisade.key_of('', 'orders'))", "orders").await
}

#[tokio::test]
async fn a_row_that_is_locked_by_hand_is_in_nobody_elses_way() -> Result<()> {
    let server = postgres().await?;
    let owner = client(&server.url()).await?;
    // Expired, and not to be removed by whoever comes next.
    let guard = owner.mutex("orders")?.acquire().await?;
    std::mem::forget(guard);
    owner.engine().close().await;
    drop(owner);
    let expired = "SELECT count(*) FROM palisade.claim WHERE resource = 'orders' AND expires < now()";
    until("it has expired", async || Ok(server.psql(expired).await?.trim() == "1")).await?;
    others_go_on(&server, "SELECT FROM palisade.claim WHERE resource = 'orders' FOR UPDATE", "orders").await
}

/// A standby that must have all commits, and is not there.
#[tokio::test]
async fn commits_that_wait_for_another_server_leave_no_processes_behind() -> Result<()> {
    let server = postgres().await?;
    let one = hasty(&server).await?;
    one.mutex("orders")?.acquire().await?.release().await?;
    let standby = async |name: &str| -> Result<()> {
        server.psql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'")).await?;
        server.psql("SELECT pg_reload_conf()").await?;
        until("the setting is in force", async || {
            Ok(server.psql("SHOW synchronous_standby_names").await?.trim() == name)
        })
        .await
    };
    standby("nobody").await?;
    for _ in 0..6 {
        let lock = one.mutex("orders")?;
        let taken = tokio::time::timeout(Duration::from_secs(1), lock.acquire()).await;
        ensure!(!matches!(taken, Ok(Ok(_))), "told as granted, and known to one server only");
        let now = backends(&server).await?;
        // One more looks after the others.
        ensure!(now.len() <= MOST + 1, "{} connections", now.len());
    }
    standby("").await?;
    soon("the lock", one.mutex("orders")?.acquire()).await??.release().await?;
    one.close().await;
    until("nobody is left behind", async || Ok(backends(&server).await?.is_empty())).await
}

#[tokio::test]
async fn whoever_cannot_hear_any_more_listens_again_and_asks() -> Result<()> {
    // Once it was silent for a second it is asked for nothing at all, to see whether it answers.
    const EAR: &str = "SELECT pid FROM pg_stat_activity WHERE application_name = 'palisade'
        AND (query LIKE 'LISTEN%' OR (query = '' AND state = 'idle' AND query_start IS NOT NULL))";
    let server = postgres().await?;
    let holder = client(&server.url()).await?;
    let ear = server.psql(EAR).await?;
    let guard = holder.mutex("orders")?.acquire().await?;
    let one = hasty(&server).await?;
    let theirs: Vec<String> = backends(&server).await?.into_iter().filter(|pid| *pid != ear.trim()).collect();
    let lock = one.mutex("orders")?;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || Ok(holder.show("orders").await?.waiters.len() == 1)).await?;
    let others = format!("{EAR} AND pid <> {}", ear.trim());
    let deaf = server.psql(&others).await?;
    server.psql(&format!("SELECT pg_terminate_backend({})", deaf.trim())).await?;
    // Told to nobody, or to the next that listens: either way it is heard of.
    guard.release().await?;
    let guard = soon("the turn", waiting).await???;
    until("it listens again", async || {
        let pid = server.psql(&others).await?;
        Ok(!pid.trim().is_empty() && pid != deaf)
    })
    .await?;
    let now = backends(&server).await?;
    let kept = theirs.iter().filter(|pid| *pid != deaf.trim()).all(|pid| now.contains(pid));
    ensure!(kept, "others were given up, too: {theirs:?} {now:?}");
    guard.release().await.context("it was valid all the while")?;
    Ok(())
}

#[tokio::test]
async fn a_client_begins_with_two_connections() -> Result<()> {
    let server = postgres().await?;
    let one = client(&server.url()).await?;
    // Whoever looked for a pooler may be about to leave.
    until("there are two", async || Ok(backends(&server).await?.len() == 2)).await?;
    one.mutex("orders")?.acquire().await?.release().await?;
    ensure!(backends(&server).await?.len() == 2, "one lock needs no more");
    Ok(())
}
