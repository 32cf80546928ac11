//! The classic lost update: an account has 1000, and −500 and −300 come at once. Lost without protection, and with a lock whose
//! holder was stopped for too long; right with each of five ways.
//!
//! `cargo run -p palisade-fence --example lost_update [URL]`: `postgres://…`, `mysql://…`; SQLite if there is none.

mod support;

use anyhow::{Result, ensure};
use futures::future::try_join;
use palisade::Client;
use palisade_fence::{
    Database, Fence, FenceError, RowLock, RowLocked, Transaction, Value, Versioned, Written,
};
use support::{AnyDatabase, Meeting, change, has_row_locks, look};

const WRITE: &str = "UPDATE example_account SET balance = ?, version = version + 1 WHERE id = 7";
const READ: &str = "SELECT balance FROM example_account WHERE id = 7";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (database, _folder) = AnyDatabase::from_args().await?;
    match database {
        AnyDatabase::Postgres(pool) => story(pool).await,
        AnyDatabase::MySql(pool) => story(pool).await,
        AnyDatabase::Sqlite(pool) => story(pool).await,
    }
}

pub(crate) async fn story<D: Database + Clone>(mut database: D) -> Result<()> {
    change(&mut database, "DROP TABLE IF EXISTS example_account", &[]).await?;
    let table =
        "CREATE TABLE example_account (id INT PRIMARY KEY, balance INT NOT NULL, version INT NOT NULL)";
    change(&mut database, table, &[]).await?;
    change(&mut database, "INSERT INTO example_account VALUES (7, 1000, 1)", &[]).await?;
    let mut tx = database.begin().await?;
    Fence::create(&mut tx).await?;
    tx.commit().await?;

    // Each of the two has a client of its own, as if they were two programs.
    let url = "memory:lost-update";
    let (one, two) = (&palisade::connect(url).await?, &palisade::connect(url).await?);
    let (a, b) = (&mut database.clone(), &mut database.clone());
    let met = &Meeting::new();

    try_join(unprotected(a, 500, met), unprotected(b, 300, met)).await?;
    outcome(&mut database, "nothing", false).await?;

    try_join(under_mutex(a, one, 500, met), under_mutex(b, two, 300, met)).await?;
    outcome(&mut database, "a mutex", true).await?;

    let (stopped, next) = (&Meeting::new(), &Meeting::new());
    try_join(zombie(a, one, stopped, next, false), successor(b, two, stopped, next)).await?;
    outcome(&mut database, "a mutex whose holder was stopped", false).await?;

    try_join(zombie(a, one, stopped, next, true), successor(b, two, stopped, next)).await?;
    outcome(&mut database, "a mutex and a fence", true).await?;

    try_join(optimistic(a, 500, met), optimistic(b, 300, met)).await?;
    outcome(&mut database, "an optimistic version", true).await?;

    try_join(atomic(a, 500), atomic(b, 300)).await?;
    outcome(&mut database, "an atomic statement", true).await?;

    try_join(under_row_lock(a, 500, met), under_row_lock(b, 300, met)).await?;
    outcome(&mut database, "a row lock", true).await?;
    change(&mut database, "DROP TABLE example_account", &[]).await?;
    Ok(())
}

/// Says what became of the account, and fills it again.
async fn outcome<D: Database>(database: &mut D, by: &str, expected: bool) -> Result<()> {
    let balance = look(database, READ).await?.and_then(|value| value.as_i64()).unwrap_or_default();
    println!("1000 − 500 − 300 = {balance:4}, protected by {by}");
    ensure!((balance == 200) == expected, "that was to be {expected}");
    change(database, "UPDATE example_account SET balance = 1000", &[]).await?;
    Ok(())
}

async fn read<D: Database>(database: &mut D) -> Result<i64> {
    Ok(look(database, READ).await?.and_then(|value| value.as_i64()).unwrap_or_default())
}

async fn write<D: Database>(database: &mut D, balance: i64) -> Result<()> {
    change(database, WRITE, &[balance.into()]).await?;
    Ok(())
}

/// Reads, thinks, writes: whoever writes last wins, and the other's change is gone.
async fn unprotected<D: Database>(database: &mut D, amount: i64, met: &Meeting) -> Result<()> {
    let balance = read(database).await?;
    met.both().await;
    write(database, balance - amount).await
}

async fn under_mutex<D: Database>(
    database: &mut D,
    client: &Client,
    amount: i64,
    met: &Meeting,
) -> Result<()> {
    let guard = client.mutex("account:7")?.acquire().await?;
    let balance = read(database).await?;
    met.perhaps().await;
    write(database, balance - amount).await?;
    guard.release().await?;
    Ok(())
}

/// A holder that is stopped after it has read, for longer than its lock lasts, and wakes when the next one is done.
async fn zombie<D: Database>(
    database: &mut D,
    client: &Client,
    stopped: &Meeting,
    next_is_done: &Meeting,
    fenced: bool,
) -> Result<()> {
    let guard = client.mutex("account:7")?.acquire().await?;
    let balance = read(database).await?;
    // What a TTL does to a stopped holder, at once.
    client.evict("account:7", guard.claim_id(), "stopped for longer than its TTL").await?;
    stopped.both().await;
    next_is_done.both().await;
    if !fenced {
        return write(database, balance - 500).await;
    }
    let mut tx = database.begin().await?;
    match Fence::of(&guard.resource()).admit(&mut tx, &guard).await {
        Err(FenceError::Stale { yours, current }) => {
            println!("       token {yours} is refused: {current} has been here");
        }
        other => anyhow::bail!("a zombie was let in: {other:?}"),
    }
    drop(tx);
    // So it does all of it again, as a holder.
    let guard = client.mutex("account:7")?.acquire().await?;
    fenced_update(database, &guard, 500).await
}

async fn successor<D: Database>(
    database: &mut D,
    client: &Client,
    stopped: &Meeting,
    done: &Meeting,
) -> Result<()> {
    stopped.both().await;
    let guard = client.mutex("account:7")?.acquire().await?;
    fenced_update(database, &guard, 300).await?;
    guard.release().await?;
    done.both().await;
    Ok(())
}

/// The fence and the write are one transaction.
async fn fenced_update<D: Database>(
    database: &mut D,
    guard: &palisade::MutexGuard,
    amount: i64,
) -> Result<()> {
    let mut tx = database.begin().await?;
    Fence::of(&guard.resource()).admit(&mut tx, guard).await?;
    let balance = tx.query(READ, &[]).await?[0][0].as_i64().unwrap_or_default();
    tx.execute(WRITE, &[(balance - amount).into()]).await?;
    tx.commit().await?;
    Ok(())
}

async fn optimistic<D: Database>(database: &mut D, amount: i64, met: &Meeting) -> Result<()> {
    let accounts = Versioned::table("example_account")?.key("id")?.version("version")?.column("balance")?;
    let mut tx = database.begin().await?;
    let mut mine = accounts.read(&mut tx, &[7.into()]).await?;
    tx.commit().await?;
    met.both().await;
    while let Some(row) = mine {
        let balance = row.get("balance").and_then(Value::as_i64).unwrap_or_default();
        let mut tx = database.begin().await?;
        let written = accounts.write(&mut tx, &row, &[("balance", (balance - amount).into())]).await?;
        tx.commit().await?;
        mine = match written {
            Written::Done(_) | Written::Gone => None,
            Written::Conflict(now) => Some(now),
        };
    }
    Ok(())
}

/// No reading, no thinking: the database does both.
async fn atomic<D: Database>(database: &mut D, amount: i64) -> Result<()> {
    let sql = "UPDATE example_account SET balance = balance - ? WHERE id = 7 AND balance >= ?";
    ensure!(change(database, sql, &[amount.into(), amount.into()]).await? == 1, "there is enough");
    Ok(())
}

async fn under_row_lock<D: Database>(database: &mut D, amount: i64, met: &Meeting) -> Result<()> {
    let mut tx = database.begin().await?;
    let balance = if has_row_locks(tx.dialect()) {
        let account = RowLock::on("example_account")?.key("id", 7)?.column("balance")?;
        let RowLocked::Locked(row) = account.lock(&mut tx).await? else {
            anyhow::bail!("there is an account")
        };
        row[0].as_i64()
    } else {
        // SQLite has begun with its one lock.
        tx.query(READ, &[]).await?[0][0].as_i64()
    };
    met.perhaps().await;
    tx.execute(WRITE, &[(balance.unwrap_or_default() - amount).into()]).await?;
    tx.commit().await?;
    Ok(())
}
