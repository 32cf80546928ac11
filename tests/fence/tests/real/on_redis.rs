//! Reservations on Redis.

use std::time::Duration;

use anyhow::{Result, ensure};
use palisade_fence::{DbErrorKind, Keep, RedisCounter, RedisSeats, Reserved, State, Stock};
use palisade_fence_trials::until;
use palisade_testkit::servers::{RedisOptions, RedisServer};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

const LONG: Keep = Keep::For(Duration::from_hours(1));
const SHORT: Keep = Keep::For(Duration::from_millis(1));

async fn started() -> Result<(RedisServer, MultiplexedConnection)> {
    let server = RedisServer::start(RedisOptions::default()).await?;
    let client = redis::Client::open(format!("redis://{}", server.address()))?;
    let redis = client.get_multiplexed_async_connection().await?;
    Ok((server, redis))
}

#[tokio::test]
async fn a_counter_on_redis() -> Result<()> {
    let (_server, mut redis) = started().await?;
    let gifts = RedisCounter::new("gifts }{%")?;
    ensure!(gifts.stock(&mut redis).await?.is_none(), "new");
    ensure!(gifts.reserve(&mut redis, "a", 1, LONG).await.is_err(), "no capacity");
    ensure!(gifts.set_capacity(&mut redis, 5).await?, "made");
    for expected in [Reserved::Yes(State::Held), Reserved::Again(State::Held)] {
        ensure!(gifts.reserve(&mut redis, "a", 3, LONG).await? == expected, "3 of 5");
    }
    ensure!(gifts.reserve(&mut redis, "a", 2, LONG).await.is_err(), "another amount");
    for other in [SHORT, Keep::Always] {
        let told = gifts.reserve(&mut redis, "a", 3, other).await;
        ensure!(told.as_ref().is_err_and(|error| error.kind() == DbErrorKind::Invalid), "{told:?}");
    }
    ensure!(gifts.reserve(&mut redis, "b", 3, LONG).await? == Reserved::Full { left: 2 }, "2 are left");
    ensure!(!gifts.set_capacity(&mut redis, 2).await?, "more are taken");
    for _ in 0..2 {
        ensure!(gifts.cancel(&mut redis, "a").await? == Some(State::Cancelled), "once");
    }
    ensure!(
        gifts.reserve(&mut redis, "a", 3, LONG).await? == Reserved::Again(State::Cancelled),
        "a late repeat"
    );
    ensure!(gifts.reserve(&mut redis, "c", 5, SHORT).await?.is_given(), "all, for a moment");
    until("a hold is over", || {
        let (gifts, mut redis) = (gifts.clone(), redis.clone());
        async move { Ok(gifts.reserve(&mut redis, "d", 4, LONG).await?.is_given()) }
    })
    .await?;
    ensure!(gifts.confirm(&mut redis, "c").await? == Some(State::Expired), "too late");
    ensure!(gifts.confirm(&mut redis, "d").await? == Some(State::Confirmed), "in time");
    ensure!(gifts.cancel(&mut redis, "d").await? == Some(State::Confirmed), "stays");
    ensure!(gifts.confirm(&mut redis, "x").await?.is_none(), "never asked");
    ensure!(gifts.stock(&mut redis).await? == Some(Stock { capacity: 5, taken: 4 }), "d's");
    ensure!(gifts.expire(&mut redis).await? == 0, "none");
    ensure!(gifts.forget(&mut redis, Duration::from_hours(1)).await? == 0, "not yet");
    let mut forgotten = 0;
    let limit = std::time::Instant::now() + palisade_fence_trials::PATIENCE;
    while forgotten < 2 {
        forgotten += gifts.forget(&mut redis, Duration::ZERO).await?;
        ensure!(std::time::Instant::now() < limit, "what has ended can be forgotten");
    }
    ensure!(forgotten == 2 && gifts.confirm(&mut redis, "a").await?.is_none(), "a and c");
    Ok(())
}

#[tokio::test]
async fn all_that_is_over_comes_back_on_redis() -> Result<()> {
    let (_server, mut redis) = started().await?;
    let gifts = RedisCounter::new("gifts")?;
    gifts.set_capacity(&mut redis, 1200).await?;
    for request in 0..1200 {
        ensure!(gifts.reserve(&mut redis, &format!("r{request}"), 1, LONG).await?.is_given(), "{request}");
    }
    for request in 0..1200 {
        let request = format!("r{request}");
        let _: () = redis.hset("palisade:counter:{gifts}:requests", &request, "0 1 1 3600000").await?;
        let _: () = redis.zadd("palisade:counter:{gifts}:holds", &request, 1).await?;
    }
    ensure!(gifts.reserve(&mut redis, "all", 1200, LONG).await? == Reserved::Yes(State::Held), "all");
    ensure!(gifts.stock(&mut redis).await? == Some(Stock { capacity: 1200, taken: 1200 }), "once");
    let none = gifts.reserve(&mut redis, "none", 0, LONG).await;
    ensure!(none.as_ref().is_err_and(|error| error.kind() == DbErrorKind::Invalid), "{none:?}");
    Ok(())
}

#[tokio::test]
async fn seats_on_redis() -> Result<()> {
    let (_server, mut redis) = started().await?;
    let flight = RedisSeats::new("LH 7")?;
    for expected in [Reserved::Yes(State::Held), Reserved::Again(State::Held)] {
        ensure!(flight.book(&mut redis, "A1", "anna", LONG).await? == expected, "anna's");
    }
    ensure!(flight.book(&mut redis, "A1", "bert", LONG).await? == Reserved::Full { left: 0 }, "not bert's");
    ensure!(flight.cancel(&mut redis, "A1", "anna").await? == Some(State::Cancelled), "given back");
    ensure!(flight.who(&mut redis, "A1").await?.is_none(), "nobody's");
    ensure!(
        flight.book(&mut redis, "A1", "anna", LONG).await? == Reserved::Again(State::Cancelled),
        "a late repeat"
    );
    ensure!(flight.book(&mut redis, "A1", "bert", SHORT).await?.is_given(), "for a moment");
    until("a hold is over", || {
        let (flight, mut redis) = (flight.clone(), redis.clone());
        async move { Ok(flight.book(&mut redis, "A1", "carl", LONG).await?.is_given()) }
    })
    .await?;
    ensure!(flight.confirm(&mut redis, "A1", "bert").await? == Some(State::Expired), "too late");
    ensure!(flight.confirm(&mut redis, "A1", "carl").await? == Some(State::Confirmed), "in time");
    ensure!(flight.who(&mut redis, "A1").await?.as_deref() == Some("carl"), "carl's");
    ensure!(flight.confirm(&mut redis, "A", "1carl").await?.is_none(), "pairs are told apart");
    let told = flight.book(&mut redis, "A1", "carl", Keep::Always).await;
    ensure!(told.as_ref().is_err_and(|error| error.kind() == DbErrorKind::Invalid), "{told:?}");
    let mut forgotten = 0;
    let limit = std::time::Instant::now() + palisade_fence_trials::PATIENCE;
    while forgotten < 2 {
        forgotten += flight.forget(&mut redis, Duration::ZERO).await?;
        ensure!(std::time::Instant::now() < limit, "what has ended can be forgotten");
    }
    ensure!(flight.confirm(&mut redis, "A1", "bert").await?.is_none(), "forgotten");
    ensure!(flight.confirm(&mut redis, "A1", "carl").await? == Some(State::Confirmed), "not who has it");
    Ok(())
}

/// What a server does that evicts: one key goes, the others stay.
#[tokio::test]
async fn a_counter_of_which_a_key_was_evicted() -> Result<()> {
    let (_server, mut redis) = started().await?;
    let gifts = RedisCounter::new("gifts")?;
    let key = |what: &str| format!("palisade:counter:{{gifts}}:{what}");
    gifts.set_capacity(&mut redis, 3).await?;
    ensure!(gifts.reserve(&mut redis, "a", 3, SHORT).await?.is_given(), "all");
    // A hold whose request is gone: what it took cannot be known, but nobody is told of an error.
    let _: () = redis.del(key("requests")).await?;
    until("the hold is looked at", || {
        let (gifts, mut redis, holds) = (gifts.clone(), redis.clone(), key("holds"));
        async move {
            ensure!(
                gifts.reserve(&mut redis, "b", 1, LONG).await? == Reserved::Full { left: 0 },
                "never more"
            );
            ensure!(gifts.expire(&mut redis).await? == 0, "nothing came back");
            Ok(redis.zcard::<_, u64>(holds).await? == 0)
        }
    })
    .await?;
    // The stock is gone: what requests have counts.
    let gifts = RedisCounter::new("others")?;
    gifts.set_capacity(&mut redis, 3).await?;
    ensure!(gifts.reserve(&mut redis, "a", 2, LONG).await?.is_given(), "2 of 3");
    let _: () = redis.del("palisade:counter:{others}:stock").await?;
    ensure!(gifts.reserve(&mut redis, "b", 2, LONG).await.is_err(), "no capacity");
    ensure!(!gifts.set_capacity(&mut redis, 1).await?, "2 are taken");
    ensure!(gifts.set_capacity(&mut redis, 3).await?, "anew");
    ensure!(gifts.reserve(&mut redis, "b", 2, LONG).await? == Reserved::Full { left: 1 }, "1 is left");
    Ok(())
}

#[tokio::test]
async fn seats_of_which_a_key_was_evicted() -> Result<()> {
    let (_server, mut redis) = started().await?;
    let flight = RedisSeats::new("LH 7")?;
    for key in ["who", "requests", "ended"] {
        let seat = format!("seat {key}");
        ensure!(flight.book(&mut redis, &seat, "anna", Keep::Always).await?.is_given(), "anna's");
        let _: () = redis.del(format!("palisade:seats:{{LH 7}}:{key}")).await?;
        for _ in 0..2 {
            let second = flight.book(&mut redis, &seat, "bert", LONG).await?;
            ensure!(second == Reserved::Full { left: 0 }, "{key}: {second:?}");
        }
        ensure!(flight.who(&mut redis, &seat).await?.as_deref() == Some("anna"), "{key}");
    }
    Ok(())
}
