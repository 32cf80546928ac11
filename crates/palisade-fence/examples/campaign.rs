//! The flash campaign: the first so many users get a gift, all ask at once, and each asks twice. By a reservation, which needs
//! no lock, and under a lock; none is given twice, and none too many, by either.
//!
//! `cargo run --release -p palisade-fence --example campaign [URL [GIFTS]]`: `postgres://…`, `mysql://…`; SQLite if there is none.

mod support;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use palisade::Client;
use palisade_fence::{Attempts, Backoff, Counter, Database, DbError, Keep, Transaction};
use support::{AnyDatabase, change, look};

const CLIENTS: u64 = 16;
const NOTE: &str = "INSERT INTO example_given (person) VALUES (?)";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (database, _folder) = AnyDatabase::from_args().await?;
    let gifts =
        std::env::args().nth(2).map_or(Ok(500), |gifts| gifts.parse()).context("a number of gifts")?;
    match database {
        AnyDatabase::Postgres(pool) => story(pool, gifts).await,
        AnyDatabase::MySql(pool) => story(pool, gifts).await,
        AnyDatabase::Sqlite(pool) => story(pool, gifts).await,
    }
}

pub(crate) async fn story<D: Database + Clone>(mut database: D, gifts: u64) -> Result<()> {
    let mut tx = database.begin().await?;
    Counter::create(&mut tx).await?;
    tx.commit().await?;
    change(&mut database, "DROP TABLE IF EXISTS example_given", &[]).await?;
    // No constraint: a gift that is given twice must be seen.
    change(&mut database, "CREATE TABLE example_given (person VARCHAR(60) NOT NULL)", &[]).await?;
    change(&mut database, "CREATE INDEX example_given_person ON example_given (person)", &[]).await?;

    // A new campaign for each run of the example.
    let counter = Counter::new(format!("campaign {}", uuid()))?;
    let mut tx = database.begin().await?;
    counter.set_capacity(&mut tx, gifts).await?;
    tx.commit().await?;
    let rivals = (0..CLIENTS).map(|client| {
        let (mut database, counter) = (database.clone(), &counter);
        async move {
            for user in users(client, gifts) {
                at_last(&mut database, async |database: &mut D| reserve(database, counter, &user).await)
                    .await?;
            }
            anyhow::Ok(())
        }
    });
    let began = Instant::now();
    try_join_all(rivals).await?;
    outcome(&mut database, gifts, "by a reservation", began.elapsed()).await?;

    let rivals = (0..CLIENTS).map(|client| {
        let mut database = database.clone();
        async move {
            let lock = palisade::connect("memory:campaign").await?;
            for user in users(client, gifts) {
                under_lock(&mut database, &lock, gifts, &user).await?;
            }
            anyhow::Ok(())
        }
    });
    let began = Instant::now();
    try_join_all(rivals).await?;
    outcome(&mut database, gifts, "under a lock", began.elapsed()).await?;
    change(&mut database, "DROP TABLE example_given", &[]).await?;
    Ok(())
}

/// A quarter more users than gifts, each of whom asks twice.
fn users(client: u64, gifts: u64) -> impl Iterator<Item = String> {
    let each = gifts * 5 / 4 / CLIENTS + 1;
    (0..each * 2).map(move |at| format!("user {client}-{}", at / 2))
}

fn uuid() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), since.as_nanos())
}

async fn outcome<D: Database>(database: &mut D, gifts: u64, how: &str, took: Duration) -> Result<()> {
    for count in ["COUNT(*)", "COUNT(DISTINCT person)"] {
        let given = look(database, &format!("SELECT {count} FROM example_given")).await?;
        ensure!(
            given.and_then(|value| value.as_i64()) == i64::try_from(gifts).ok(),
            "each once, and no more"
        );
    }
    let asked = (0..CLIENTS).map(|client| users(client, gifts).count()).sum::<usize>();
    println!("{gifts} gifts were given once each, {how}: {asked} requests in {took:.1?}");
    change(database, "DELETE FROM example_given", &[]).await?;
    Ok(())
}

/// The note of who got a gift, and the gift, are one transaction. The gift comes last: the fewer statements others wait for, the better.
async fn reserve<D: Database>(database: &mut D, counter: &Counter, user: &str) -> Result<(), DbError> {
    let mut tx = database.begin().await?;
    tx.execute(NOTE, &[user.into()]).await?;
    if counter.reserve(&mut tx, user, 1, Keep::Always).await?.is_new() {
        tx.commit().await?;
    }
    Ok(())
}

async fn under_lock<D: Database>(database: &mut D, lock: &Client, gifts: u64, user: &str) -> Result<()> {
    let guard = lock.mutex("campaign")?.acquire().await?;
    let mut tx = database.begin().await?;
    let given = tx.query("SELECT COUNT(*) FROM example_given", &[]).await?[0][0].as_i64().unwrap_or_default();
    let before = tx.query("SELECT 1 FROM example_given WHERE person = ?", &[user.into()]).await?;
    if given.cast_unsigned() < gifts && before.is_empty() {
        tx.execute(NOTE, &[user.into()]).await?;
    }
    tx.commit().await?;
    guard.release().await?;
    Ok(())
}

async fn at_last<D: Database>(
    database: &mut D,
    mut once: impl AsyncFnMut(&mut D) -> Result<(), DbError>,
) -> Result<(), DbError> {
    let mut attempts = Attempts::new(Backoff::default().tries(1000));
    loop {
        match once(database).await {
            Err(error) if attempts.again(&error).await => {}
            done => return done,
        }
    }
}
