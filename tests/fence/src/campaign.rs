//! The flash campaign: more users than gifts, all at once.

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use palisade_fence::{Attempts, Backoff, Counter, Database, DbError, Keep, RedisCounter, Transaction};
use redis::aio::MultiplexedConnection;

/// How many gifts there are.
pub const GIFTS: u64 = 10_000;
/// How many processes give them.
pub const PROCESSES: usize = 4;
/// How many clients each process has.
pub const CLIENTS: usize = 16;
/// How many users each client has: more in all than gifts.
pub const USERS: usize = 200;

/// The counter of gifts.
///
/// # Panics
/// Never: that is a name.
pub fn gifts() -> Counter {
    Counter::new("campaign").expect("a name")
}

/// The counter of gifts, on Redis.
///
/// # Panics
/// Never: that is a name.
pub fn redis_gifts() -> RedisCounter {
    RedisCounter::new("campaign").expect("a name")
}

/// The users of a client.
pub fn users(process: usize, client: usize) -> impl Iterator<Item = String> {
    (0..USERS).map(move |user| format!("user-{process}-{client}-{user}"))
}

/// What a process does on a database: asks for a gift for each of its users, and writes down who got one.
///
/// # Errors
/// The database refuses.
pub async fn give<D: Database + Clone>(database: D, process: usize) -> Result<()> {
    let clients = (0..CLIENTS).map(|client| {
        let mut database = database.clone();
        async move {
            let backoff =
                Backoff::default().tries(1000).pauses(Duration::from_millis(1), Duration::from_millis(50));
            for user in users(process, client) {
                let mut attempts = Attempts::new(backoff);
                loop {
                    match give_one(&mut database, &user).await {
                        Err(error) if attempts.again(&error).await => {}
                        done => break done?,
                    }
                }
            }
            anyhow::Ok(())
        }
    });
    try_join_all(clients).await?;
    Ok(())
}

/// One transaction: the reservation and its effect come together, or not at all.
async fn give_one<D: Database>(database: &mut D, user: &str) -> Result<(), DbError> {
    let mut tx = database.begin().await?;
    tx.execute("INSERT INTO given (person) VALUES (?)", &[user.into()]).await?;
    // Not new if this process was killed after the commit, and asks again now: then it is not written down twice.
    if gifts().reserve(&mut tx, user, 1, Keep::Always).await?.is_new() {
        tx.commit().await?;
    }
    Ok(())
}

/// What a process does on Redis.
///
/// # Errors
/// The server refuses.
pub async fn give_on_redis(redis: MultiplexedConnection, process: usize) -> Result<()> {
    let clients = (0..CLIENTS).map(|client| {
        let mut redis = redis.clone();
        async move {
            let gifts = redis_gifts();
            for user in users(process, client) {
                gifts.reserve(&mut redis, &user, 1, Keep::Always).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(clients).await?;
    Ok(())
}
