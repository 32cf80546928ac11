//! Reservations, on every driver.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use palisade_fence::{
    Attempts, Backoff, Counter, Database, DbError, DbErrorKind, Keep, Reserved, Seats, State, Stock,
    Transaction,
};
use palisade_fence_trials::{Place, SqlxMysql, SqlxPostgres, number, run, soon};

const LONG: Keep = Keep::For(Duration::from_hours(1));
const SHORT: Keep = Keep::For(Duration::from_millis(1));

async fn prepared<P: Place>(place: &P) -> Result<P::Db> {
    let mut database = place.open().await?;
    for seats in [false, true] {
        let mut tx = database.begin().await?;
        if seats {
            Seats::create(&mut tx).await?;
        } else {
            Counter::create(&mut tx).await?;
        }
        tx.commit().await?;
    }
    Ok(database)
}

/// Does one step in a transaction of its own.
macro_rules! step {
    ($database:expr, $of:ident . $verb:ident ( $($arg:expr),* )) => {{
        let mut tx = $database.begin().await?;
        let done = $of.$verb(&mut tx $(, $arg)*).await?;
        tx.commit().await?;
        done
    }};
}

async fn a_counter_gives_what_it_has<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let gifts = Counter::new("gifts ?'\"🚲")?;
    ensure!(step!(database, gifts.stock()).is_none(), "new");
    let mut tx = database.begin().await?;
    let unset = gifts.reserve(&mut tx, "a", 1, LONG).await;
    ensure!(unset.is_err_and(|error| error.kind() == DbErrorKind::Invalid), "no capacity");
    drop(tx);
    ensure!(step!(database, gifts.set_capacity(5)), "made");
    for expected in [Reserved::Yes(State::Held), Reserved::Again(State::Held)] {
        ensure!(step!(database, gifts.reserve("a", 3, LONG)) == expected, "3 of 5");
    }
    ensure!(step!(database, gifts.reserve("b", 3, LONG)) == Reserved::Full { left: 2 }, "2 are left");
    ensure!(
        step!(database, gifts.reserve("c", 2, Keep::Always)) == Reserved::Yes(State::Confirmed),
        "they are"
    );
    ensure!(step!(database, gifts.stock()) == Some(Stock { capacity: 5, taken: 5 }), "all taken");
    ensure!(!step!(database, gifts.set_capacity(4)), "more than that are taken");
    let mut tx = database.begin().await?;
    ensure!(gifts.reserve(&mut tx, "a", 2, LONG).await.is_err(), "another amount");
    for other in [SHORT, Keep::Always] {
        let told = gifts.reserve(&mut tx, "a", 3, other).await;
        ensure!(told.as_ref().is_err_and(|error| error.kind() == DbErrorKind::Invalid), "{told:?}");
    }
    drop(tx);
    // Given back: once, however often one asks.
    for _ in 0..2 {
        ensure!(step!(database, gifts.cancel("a")) == Some(State::Cancelled), "cancelled");
    }
    ensure!(step!(database, gifts.stock()) == Some(Stock { capacity: 5, taken: 2 }), "3 are back");
    ensure!(
        step!(database, gifts.reserve("a", 3, LONG)) == Reserved::Again(State::Cancelled),
        "a late repeat takes none"
    );
    ensure!(step!(database, gifts.confirm("a")) == Some(State::Cancelled), "too late");
    ensure!(step!(database, gifts.cancel("c")) == Some(State::Confirmed), "what is given stays given");
    ensure!(
        step!(database, gifts.confirm("x")).is_none() && step!(database, gifts.cancel("x")).is_none(),
        "none"
    );
    ensure!(step!(database, gifts.reserve("d", 1, LONG)).is_given(), "one");
    for _ in 0..2 {
        ensure!(step!(database, gifts.confirm("d")) == Some(State::Confirmed), "confirmed");
    }
    ensure!(step!(database, gifts.forget(Duration::from_hours(1))) == 0, "not yet");
    ensure!(step!(database, gifts.stock()) == Some(Stock { capacity: 5, taken: 3 }), "3 taken");
    Ok(())
}

async fn holds_that_are_over_come_back<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let gifts = Counter::new("gifts")?;
    step!(database, gifts.set_capacity(2));
    ensure!(step!(database, gifts.reserve("a", 1, SHORT)).is_given(), "held");
    ensure!(step!(database, gifts.reserve("b", 1, LONG)).is_given(), "held");
    // The next one gets it as soon as it is over; who was too late is told so.
    let limit = std::time::Instant::now() + palisade_fence_trials::PATIENCE;
    while !step!(database, gifts.reserve("c", 1, LONG)).is_given() {
        ensure!(std::time::Instant::now() < limit, "a hold of 1 ms lasts too long");
    }
    ensure!(step!(database, gifts.confirm("a")) == Some(State::Expired), "too late");
    ensure!(step!(database, gifts.reserve("a", 1, SHORT)) == Reserved::Again(State::Expired), "for good");
    ensure!(step!(database, gifts.cancel("b")) == Some(State::Cancelled), "given back");
    ensure!(step!(database, gifts.reserve("d", 1, SHORT)).is_given(), "held");
    while step!(database, gifts.expire()) == 0 {
        ensure!(std::time::Instant::now() < limit, "a hold of 1 ms lasts too long");
    }
    ensure!(step!(database, gifts.stock()) == Some(Stock { capacity: 2, taken: 1 }), "c has one");
    while step!(database, gifts.forget(Duration::ZERO)) == 0 {
        ensure!(std::time::Instant::now() < limit, "what has ended can be forgotten");
    }
    Ok(())
}

/// More holds are over than one sweep ends, and all of what they held is wanted at once.
async fn all_that_is_over_comes_back_if_need_be<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let gifts = Counter::new("gifts")?;
    step!(database, gifts.set_capacity(1200));
    let mut tx = database.begin().await?;
    for request in 0..1200 {
        gifts.reserve(&mut tx, &format!("r{request}"), 1, LONG).await?;
    }
    tx.execute("UPDATE palisade_reservation SET at = 1", &[]).await?;
    tx.commit().await?;
    ensure!(step!(database, gifts.reserve("all", 1200, LONG)) == Reserved::Yes(State::Held), "all");
    ensure!(step!(database, gifts.stock()) == Some(Stock { capacity: 1200, taken: 1200 }), "once");
    let mut tx = database.begin().await?;
    let none = gifts.reserve(&mut tx, "none", 0, LONG).await;
    ensure!(none.as_ref().is_err_and(|error| error.kind() == DbErrorKind::Invalid), "{none:?}");
    Ok(())
}

async fn a_seat_is_given_once<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let flight = Seats::new("LH 7")?;
    for expected in [Reserved::Yes(State::Held), Reserved::Again(State::Held)] {
        ensure!(step!(database, flight.book("A1", "anna", LONG)) == expected, "anna's");
    }
    ensure!(step!(database, flight.book("A1", "bert", LONG)) == Reserved::Full { left: 0 }, "not bert's");
    ensure!(step!(database, flight.book("A2", "bert", LONG)).is_given(), "another seat");
    ensure!(step!(database, flight.book("a1", "carl", LONG)).is_given(), "case counts");
    ensure!(step!(database, flight.cancel("A1", "anna")) == Some(State::Cancelled), "given back");
    ensure!(step!(database, flight.who("A1")).is_none(), "nobody's");
    ensure!(
        step!(database, flight.book("A1", "anna", LONG)) == Reserved::Again(State::Cancelled),
        "a late repeat"
    );
    ensure!(step!(database, flight.book("A1", "bert", SHORT)).is_given(), "bert's for a moment");
    let limit = std::time::Instant::now() + palisade_fence_trials::PATIENCE;
    while !step!(database, flight.book("A1", "carl", LONG)).is_given() {
        ensure!(std::time::Instant::now() < limit, "a hold of 1 ms lasts too long");
    }
    ensure!(step!(database, flight.confirm("A1", "bert")) == Some(State::Expired), "too late");
    ensure!(step!(database, flight.confirm("A1", "carl")) == Some(State::Confirmed), "in time");
    ensure!(step!(database, flight.cancel("A1", "carl")) == Some(State::Confirmed), "stays");
    ensure!(step!(database, flight.confirm("A1", "dora")).is_none(), "never asked");
    ensure!(step!(database, flight.who("A1")).as_deref() == Some("carl"), "carl's");
    // Bert's ended last: a clock that was set back a little leaves it for a later look.
    while step!(database, flight.confirm("A1", "bert")).is_some() {
        ensure!(std::time::Instant::now() < limit, "what has ended can be forgotten");
        step!(database, flight.forget(Duration::ZERO));
    }
    ensure!(step!(database, flight.who("A1")).as_deref() == Some("carl"), "not who has it");
    let mut tx = database.begin().await?;
    let told = flight.book(&mut tx, "A1", "carl", Keep::Always).await;
    ensure!(told.as_ref().is_err_and(|error| error.kind() == DbErrorKind::Invalid), "{told:?}");
    drop(tx);
    // The net: even who writes around us cannot give it twice.
    let mut tx = database.begin().await?;
    let insert = "INSERT INTO palisade_booking (event, seat, request, live, state, at, kept_for) VALUES ('LH 7', 'A1', 'z', 1, 1, 0, 0)";
    let second = tx.execute(insert, &[]).await;
    ensure!(second.is_err_and(|error| error.kind() == DbErrorKind::Duplicate), "a unique constraint");
    Ok(())
}

async fn the_table_itself_refuses_to_oversell<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let gifts = Counter::new("gifts")?;
    step!(database, gifts.set_capacity(2));
    for wrong in ["taken = 3", "taken = -1", "capacity = -1"] {
        let changed = run(&mut database, &[&format!("UPDATE palisade_counter SET {wrong}")]).await;
        ensure!(changed.is_err(), "{wrong}");
    }
    Ok(())
}

palisade_fence_trials::on_every_driver!(
    a_counter_gives_what_it_has,
    holds_that_are_over_come_back,
    all_that_is_over_comes_back_if_need_be,
    a_seat_is_given_once,
    the_table_itself_refuses_to_oversell,
);

mod rivals {
    use super::*;

    const RIVALS: usize = 8;

    async fn at_last<D: Database, T>(
        database: &mut D,
        mut once: impl AsyncFnMut(&mut D) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let mut attempts = Attempts::new(Backoff::default().tries(1000));
        loop {
            match once(database).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    /// Rivals take, give back, let go and confirm at once: what is counted is what is given.
    async fn what_is_counted_is_what_is_given<P: Place>(place: P) -> Result<()> {
        let mut database = prepared(&place).await?;
        let gifts = Counter::new("gifts")?;
        step!(database, gifts.set_capacity(10));
        let mut rivals = Vec::new();
        for rival in 0..RIVALS {
            let (mut database, gifts) = (place.open().await?, gifts.clone());
            rivals.push(async move {
                for round in 0..12 {
                    let request = format!("{rival}-{round}");
                    let keep = if round % 3 == 0 { SHORT } else { LONG };
                    let given = at_last(&mut database, async |database: &mut P::Db| {
                        let mut tx = database.begin().await?;
                        let reserved = gifts.reserve(&mut tx, &request, 1 + round % 3, keep).await?;
                        tx.commit().await?;
                        Ok(reserved.is_given())
                    })
                    .await?;
                    if given && round % 3 == 1 {
                        at_last(&mut database, async |database: &mut P::Db| {
                            let mut tx = database.begin().await?;
                            gifts.cancel(&mut tx, &request).await?;
                            tx.commit().await
                        })
                        .await?;
                    }
                }
                Ok::<(), DbError>(())
            });
        }
        soon("all rivals", try_join_all(rivals)).await??;
        let counted = step!(database, gifts.stock()).map_or(0, |stock| stock.taken);
        let sum = "SELECT CAST(COALESCE(SUM(amount), 0) AS CHAR(20)) FROM palisade_reservation WHERE state IN (0, 1)";
        let mut tx = database.begin().await?;
        let given = tx.query(sum, &[]).await?[0][0].as_str().unwrap_or_default().trim().parse::<u64>()?;
        ensure!(counted == given && given <= 10, "{counted} counted, {given} given");
        Ok(())
    }

    async fn one_of_many_gets_the_seat<P: Place>(place: P) -> Result<()> {
        let mut database = prepared(&place).await?;
        let flight = Seats::new("LH 7")?;
        for seat in ["A1", "A2", "A3"] {
            let mut rivals = Vec::new();
            for rival in 0..RIVALS {
                let (mut database, flight) = (place.open().await?, flight.clone());
                rivals.push(async move {
                    at_last(&mut database, async |database: &mut P::Db| {
                        let mut tx = database.begin().await?;
                        let booked = flight.book(&mut tx, seat, &rival.to_string(), Keep::Always).await?;
                        tx.commit().await?;
                        Ok(booked.is_given())
                    })
                    .await
                });
            }
            let given = soon("all rivals", try_join_all(rivals)).await??;
            ensure!(given.iter().filter(|given| **given).count() == 1, "{seat}: {given:?}");
            ensure!(step!(database, flight.who(seat)).is_some(), "somebody's");
        }
        Ok(())
    }

    /// Waiting for the counter takes longer than the hold is to last: it is not swept by its own request, and lasts from when it
    /// is told.
    async fn a_wait_does_not_use_up_the_hold<P: Place>(place: P) -> Result<()> {
        for (capacity, hold, wait) in [(1, 200, 600), (2, 2000, 2500)] {
            let [hold, wait] = [hold, wait].map(Duration::from_millis);
            let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
            let gifts = Counter::new(format!("gifts {capacity}"))?;
            step!(one, gifts.set_capacity(capacity));
            let mut before = one.begin().await?;
            ensure!(gifts.reserve(&mut before, "a", 1, LONG).await?.is_given(), "the first");
            let waits = async {
                let mut tx = two.begin().await?;
                let told = gifts.reserve(&mut tx, "b", 1, Keep::For(hold)).await?;
                let confirmed = gifts.confirm(&mut tx, "b").await?;
                tx.commit().await?;
                Ok::<_, DbError>((told, confirmed))
            };
            let lets_go = async {
                // Longer than the hold; it does not matter whether the other has begun to wait.
                tokio::time::sleep(wait).await;
                before.commit().await
            };
            let (waited, committed) = soon("both", futures::future::join(waits, lets_go)).await?;
            committed?;
            let (told, confirmed) = waited?;
            let (given, taken) = if capacity == 1 {
                ensure!(confirmed.is_none(), "{confirmed:?}");
                (Reserved::Full { left: 0 }, 1)
            } else {
                ensure!(confirmed == Some(State::Confirmed), "{confirmed:?}");
                (Reserved::Yes(State::Held), 2)
            };
            ensure!(told == given, "{told:?} of {capacity}");
            ensure!(step!(one, gifts.stock()) == Some(Stock { capacity, taken }), "{capacity}");
        }
        Ok(())
    }

    palisade_fence_trials::on_every_server!(
        what_is_counted_is_what_is_given,
        one_of_many_gets_the_seat,
        a_wait_does_not_use_up_the_hold,
    );
}

/// The sweep of a counter that is sold out does not look at holds that last: its clock bounds the index.
#[tokio::test]
async fn holds_that_last_are_not_looked_at() -> Result<()> {
    let place = SqlxPostgres::new().await?;
    let mut database = prepared(&place).await?;
    let gifts = Counter::new("gifts")?;
    step!(database, gifts.set_capacity(5000));
    let holds = "INSERT INTO palisade_reservation (counter, request, amount, state, at, kept_for) \
                SELECT 'gifts', 'r' || n, 1, 0, 9000000000000, 1 FROM generate_series(1, 5000) n";
    run(&mut database, &[holds, "UPDATE palisade_counter SET taken = 5000", "ANALYZE palisade_reservation"])
        .await?;
    let read = async |database: &mut sqlx::PgPool| {
        // In the transaction itself: what others are told comes later.
        let mut tx = Database::begin(database).await?;
        let full = gifts.reserve(&mut tx, "one more", 1, LONG).await?;
        ensure!(full == Reserved::Full { left: 0 }, "{full:?}");
        let sql = "SELECT CAST(COALESCE(SUM(seq_tup_read + idx_tup_fetch), 0) AS BIGINT) \
                   FROM pg_stat_xact_user_tables WHERE relname = 'palisade_reservation'";
        let rows = Transaction::query(&mut tx, sql, &[]).await?;
        rows[0][0].as_i64().ok_or_else(|| anyhow::anyhow!("no number"))
    };
    let rows = read(&mut database).await?;
    ensure!(rows < 100, "{rows} rows were read to find none");
    Ok(())
}

/// Two zones of which the clock is set back an hour: half an hour ago, and in half an hour. So what time it is there is
/// ambiguous now.
const ZONES: [(&str, &str); 2] = [("Palisade/Before", "+ 1800"), ("Palisade/After", "- 1800")];

async fn make_zones<D: Database>(database: &mut D) -> Result<()> {
    for (at, (zone, change)) in ZONES.iter().enumerate() {
        let id = 70_000 + at;
        let change = format!("UNIX_TIMESTAMP() {change}");
        run(
            database,
            &[
                &format!("REPLACE INTO mysql.time_zone VALUES ({id}, 'N')"),
                &format!("REPLACE INTO mysql.time_zone_name VALUES ('{zone}', {id})"),
                &format!("REPLACE INTO mysql.time_zone_transition_type VALUES ({id}, 0, 7200, 1, 'S')"),
                &format!("REPLACE INTO mysql.time_zone_transition_type VALUES ({id}, 1, 3600, 0, 'W')"),
                &format!("DELETE FROM mysql.time_zone_transition WHERE time_zone_id = {id}"),
                &format!("INSERT INTO mysql.time_zone_transition VALUES ({id}, {change} - 86400, 0)"),
                &format!("INSERT INTO mysql.time_zone_transition VALUES ({id}, {change}, 1)"),
            ],
        )
        .await?;
    }
    Ok(())
}

/// What an hour that comes twice, or a session's time zone, would do to the clock, holds would show.
#[tokio::test]
async fn holds_do_not_depend_on_time_zones() -> Result<()> {
    let place = SqlxMysql::new().await?;
    let mut database = prepared(&place).await?;
    make_zones(&mut database).await?;
    let gifts = Counter::new("gifts")?;
    step!(database, gifts.set_capacity(100));
    let zones = ["+00:00", "+10:00", "-11:00", ZONES[0].0, ZONES[1].0];
    for zone in zones {
        let mut tx = Database::begin(&mut database).await?;
        Transaction::execute(&mut tx, &format!("SET time_zone = '{zone}'"), &[]).await?;
        let hold = Keep::For(Duration::from_mins(30));
        ensure!(gifts.reserve(&mut tx, zone, 1, hold).await?.is_given(), "{zone}");
        Transaction::commit(tx).await?;
    }
    let apart = number(&mut database, "SELECT MAX(at) - MIN(at) FROM palisade_reservation").await?;
    ensure!(apart < 1_200_000, "{apart} ms");
    for zone in zones {
        let mut tx = Database::begin(&mut database).await?;
        Transaction::execute(&mut tx, &format!("SET time_zone = '{zone}'"), &[]).await?;
        ensure!(gifts.expire(&mut tx).await? == 0, "nothing is over in {zone}");
        for request in zones {
            let stands = gifts.reserve(&mut tx, request, 1, Keep::For(Duration::from_mins(30))).await?;
            ensure!(stands == Reserved::Again(State::Held), "{request}'s in {zone}: {stands:?}");
        }
    }
    Ok(())
}
