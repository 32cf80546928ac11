//! The flash campaign: 10,000 gifts, 64 clients in 4 processes that are killed, and no lock.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use palisade_fence::{Counter, Database, Keep, Transaction};
use palisade_fence_trials::campaign::{CLIENTS, GIFTS, PROCESSES, gifts, redis_gifts, users};
use palisade_fence_trials::{Place, SqlxMysql, SqlxPostgres, number, run};
use palisade_testkit::servers::{RedisOptions, RedisServer};
use tokio::process::{Child, Command};

fn worker(url: &str, process: usize) -> Result<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_campaign-worker"));
    command.args([url, &process.to_string()]).stdin(Stdio::null()).kill_on_drop(true);
    command.spawn().context("a worker")
}

/// Runs all processes to their end. Whenever another tenth of the gifts is taken, one is killed (−9) and started anew; most of
/// them must have been at work then.
async fn campaign(url: &str, taken: &mut impl AsyncFnMut() -> Result<u64>) -> Result<()> {
    let mut workers = (0..PROCESSES).map(|process| worker(url, process)).collect::<Result<Vec<_>>>()?;
    let mut kills = 0;
    for tenth in 1..=8 {
        while taken().await? < GIFTS * tenth / 10 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        let victim = tenth as usize % PROCESSES;
        kills += u32::from(workers[victim].try_wait()?.is_none());
        workers[victim].kill().await?;
        workers[victim] = worker(url, victim)?;
    }
    for worker in &mut workers {
        let ended = worker.wait().await?;
        ensure!(ended.success(), "a worker ended with {ended}");
    }
    ensure!(kills >= 4, "only {kills} were at work when they were killed");
    Ok(())
}

async fn on_database<P: Place>(place: P, url: &str) -> Result<()> {
    let mut database = place.open().await?;
    let mut tx = database.begin().await?;
    Counter::create(&mut tx).await?;
    tx.commit().await?;
    // No unique constraint: a gift given twice must be seen.
    run(
        &mut database,
        &["CREATE TABLE given (person VARCHAR(60) NOT NULL)", "CREATE INDEX given_person ON given (person)"],
    )
    .await?;
    let mut tx = database.begin().await?;
    gifts().set_capacity(&mut tx, GIFTS).await?;
    tx.commit().await?;
    let mut taken =
        async || Ok(number(&mut database, "SELECT taken FROM palisade_counter").await?.cast_unsigned());
    tokio::time::timeout(std::time::Duration::from_mins(5), campaign(url, &mut taken)).await??;
    for (what, sql) in [
        ("taken", "SELECT taken FROM palisade_counter"),
        ("given", "SELECT COUNT(*) FROM given"),
        ("users", "SELECT COUNT(DISTINCT person) FROM given"),
        ("requests", "SELECT COUNT(*) FROM palisade_reservation WHERE state = 1"),
        ("matches", "SELECT COUNT(*) FROM given JOIN palisade_reservation ON person = request"),
    ] {
        let found = number(&mut database, sql).await?;
        ensure!(found.cast_unsigned() == GIFTS, "{what}: {found}");
    }
    Ok(())
}

#[tokio::test]
async fn every_gift_is_given_once_on_postgres() -> Result<()> {
    let place = SqlxPostgres::new().await?;
    let url = place.url();
    on_database(place, &url).await
}

#[tokio::test]
async fn every_gift_is_given_once_on_mariadb() -> Result<()> {
    let place = SqlxMysql::new().await?;
    let url = place.url();
    on_database(place, &url).await
}

#[tokio::test]
async fn every_gift_is_given_once_on_redis() -> Result<()> {
    let server = RedisServer::start(RedisOptions::default()).await?;
    let url = format!("redis://{}", server.address());
    let mut redis = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
    let gifts = redis_gifts();
    gifts.set_capacity(&mut redis, GIFTS).await?;
    let mut again = redis.clone();
    let mut taken = async || Ok(gifts.stock(&mut again).await?.context("a counter")?.taken);
    campaign(&url, &mut taken).await?;
    // Who asks again is told the same: so many users have a gift, each one of their own.
    let mut given = 0;
    for process in 0..PROCESSES {
        for client in 0..CLIENTS {
            for user in users(process, client) {
                given += u64::from(gifts.reserve(&mut redis, &user, 1, Keep::Always).await?.is_given());
            }
        }
    }
    let stock = gifts.stock(&mut redis).await?.context("a counter")?;
    ensure!(given == GIFTS && stock.taken == GIFTS, "{given} given, {} taken", stock.taken);
    Ok(())
}
