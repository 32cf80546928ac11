//! The classic double booking: two want seat A1 at once. Sold twice without protection; once with each of five ways.
//!
//! `cargo run -p palisade-fence --example double_booking [URL]`: `postgres://…`, `mysql://…`; SQLite if there is none.

mod support;

use anyhow::{Result, ensure};
use futures::future::try_join;
use palisade::Client;
use palisade_fence::{
    Database, Fence, Keep, RowLock, RowLocked, Seats, Transaction, Value, Versioned, Written,
};
use support::{AnyDatabase, Meeting, change, has_row_locks, look};

const SOLD: &str = "SELECT COUNT(*) FROM example_ticket WHERE seat = 'A1'";
const SELL: &str = "INSERT INTO example_ticket (seat, person) VALUES ('A1', ?)";

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
    for table in ["example_ticket", "example_seat"] {
        change(&mut database, &format!("DROP TABLE IF EXISTS {table}"), &[]).await?;
    }
    // As one finds it: nothing keeps two tickets for one seat apart.
    change(&mut database, "CREATE TABLE example_ticket (seat VARCHAR(9), person VARCHAR(9))", &[]).await?;
    let seats =
        "CREATE TABLE example_seat (seat VARCHAR(9) PRIMARY KEY, person VARCHAR(9), version INT NOT NULL)";
    change(&mut database, seats, &[]).await?;
    change(&mut database, "INSERT INTO example_seat VALUES ('A1', NULL, 1)", &[]).await?;
    for seats in [true, false] {
        let mut tx = database.begin().await?;
        if seats {
            Seats::create(&mut tx).await?;
        } else {
            Fence::create(&mut tx).await?;
        }
        tx.commit().await?;
    }

    // Each of the two has a client of its own, as if they were two programs.
    let url = "memory:double-booking";
    let (one, two) = (&palisade::connect(url).await?, &palisade::connect(url).await?);
    let (a, b) = (&mut database.clone(), &mut database.clone());
    let met = &Meeting::new();

    let both = try_join(unprotected(a, "anna", met), unprotected(b, "bert", met)).await?;
    outcome(&mut database, "nothing", both, 2).await?;

    let both = try_join(under_mutex(a, one, "anna", met), under_mutex(b, two, "bert", met)).await?;
    outcome(&mut database, "a mutex and a fence", both, 1).await?;

    let both = try_join(optimistic(a, "anna", met), optimistic(b, "bert", met)).await?;
    outcome(&mut database, "an optimistic version", both, 1).await?;

    let both = try_join(atomic(a, "anna"), atomic(b, "bert")).await?;
    outcome(&mut database, "an atomic statement", both, 1).await?;

    let both = try_join(under_row_lock(a, "anna", met), under_row_lock(b, "bert", met)).await?;
    outcome(&mut database, "a row lock", both, 1).await?;

    let both = try_join(reserved(a, "anna"), reserved(b, "bert")).await?;
    outcome(&mut database, "a unique constraint", both, 1).await?;
    for table in ["example_ticket", "example_seat"] {
        change(&mut database, &format!("DROP TABLE {table}"), &[]).await?;
    }
    Ok(())
}

/// Says how often the seat was sold, and takes the tickets back.
async fn outcome<D: Database>(database: &mut D, by: &str, got: (bool, bool), expected: i64) -> Result<()> {
    let sold = look(database, SOLD).await?.and_then(|value| value.as_i64()).unwrap_or_default();
    println!("seat A1 was sold {sold}×, protected by {by}");
    ensure!(sold == expected, "that was to be {expected}×");
    ensure!(i64::from(got.0) + i64::from(got.1) == sold, "whoever has no ticket was told so");
    change(database, "DELETE FROM example_ticket", &[]).await?;
    change(database, "UPDATE example_seat SET person = NULL", &[]).await?;
    Ok(())
}

/// Looks whether the seat is free, thinks, and sells it.
async fn unprotected<D: Database>(database: &mut D, person: &str, met: &Meeting) -> Result<bool> {
    let is_free = look(database, SOLD).await?.and_then(|value| value.as_i64()) == Some(0);
    met.both().await;
    if is_free {
        change(database, SELL, &[person.into()]).await?;
    }
    Ok(is_free)
}

async fn under_mutex<D: Database>(
    database: &mut D,
    client: &Client,
    person: &str,
    met: &Meeting,
) -> Result<bool> {
    let guard = client.mutex("seat:A1")?.acquire().await?;
    let mut tx = database.begin().await?;
    // Also if this holder is stopped here for longer than its lock lasts.
    Fence::of(&guard.resource()).admit(&mut tx, &guard).await?;
    let is_free = tx.query(SOLD, &[]).await?[0][0].as_i64() == Some(0);
    met.perhaps().await;
    if is_free {
        tx.execute(SELL, &[person.into()]).await?;
    }
    tx.commit().await?;
    guard.release().await?;
    Ok(is_free)
}

async fn optimistic<D: Database>(database: &mut D, person: &str, met: &Meeting) -> Result<bool> {
    let seats = Versioned::table("example_seat")?.key("seat")?.version("version")?.column("person")?;
    let mut tx = database.begin().await?;
    let seat = seats.read(&mut tx, &["A1".into()]).await?;
    tx.commit().await?;
    met.both().await;
    let Some(seat) = seat.filter(|seat| seat.get("person").is_some_and(Value::is_null)) else {
        return Ok(false);
    };
    let mut tx = database.begin().await?;
    let written = seats.write(&mut tx, &seat, &[("person", person.into())]).await?;
    let is_mine = matches!(written, Written::Done(_));
    if is_mine {
        tx.execute(SELL, &[person.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_mine)
}

async fn atomic<D: Database>(database: &mut D, person: &str) -> Result<bool> {
    let mut tx = database.begin().await?;
    let take =
        "UPDATE example_seat SET person = ?, version = version + 1 WHERE seat = 'A1' AND person IS NULL";
    let is_mine = tx.execute(take, &[person.into()]).await? == 1;
    if is_mine {
        tx.execute(SELL, &[person.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_mine)
}

async fn under_row_lock<D: Database>(database: &mut D, person: &str, met: &Meeting) -> Result<bool> {
    let mut tx = database.begin().await?;
    if has_row_locks(tx.dialect()) {
        let seat = RowLock::on("example_seat")?.key("seat", "A1")?;
        ensure!(matches!(seat.lock(&mut tx).await?, RowLocked::Locked(_)), "there is such a seat");
    }
    let is_free = tx.query(SOLD, &[]).await?[0][0].as_i64() == Some(0);
    met.perhaps().await;
    if is_free {
        tx.execute(SELL, &[person.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_free)
}

/// The table of bookings has room for one.
async fn reserved<D: Database>(database: &mut D, person: &str) -> Result<bool> {
    let mut tx = database.begin().await?;
    // A new flight for each run of the example.
    let flight = Seats::new(format!("flight {}", std::process::id()))?;
    // Who asks again has the seat, but its ticket was written down before.
    let is_mine = flight.book(&mut tx, "A1", person, Keep::Always).await?.is_new();
    if is_mine {
        tx.execute(SELL, &[person.into()]).await?;
    }
    tx.commit().await?;
    Ok(is_mine)
}
