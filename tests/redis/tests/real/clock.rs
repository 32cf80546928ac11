//! A server whose clock is set while it serves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use palisade_core::{Claim, Mode, Name, Owner, Ttl};
use palisade_redis_trials::{client, soon, url};
use palisade_testkit::servers::{RedisOptions, RedisServer};

async fn server() -> Result<RedisServer> {
    RedisServer::start(RedisOptions { clock: true, ..RedisOptions::default() }).await
}

#[tokio::test]
async fn tokens_rise_over_clocks_that_jump_both_ways() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let mut last = None;
    for seconds in [0, 3600, -3600, 0, -86_400] {
        server.shift_clock(seconds)?;
        let guard = soon("the lock", client.mutex("orders")?.acquire()).await??;
        ensure!(
            Some(guard.token()) > last,
            "{} came after {last:?} with a shift of {seconds} s",
            guard.token()
        );
        last = Some(guard.token());
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_jump_that_ends_a_lock_early_leaves_its_holder_fenced_off() -> Result<()> {
    let server = server().await?;
    let (one, two) = (client(&url(&server)).await?, client(&url(&server)).await?);
    let register = one.register("balance")?;
    let robbed = one.mutex("orders")?.acquire().await?;
    let late = register.fenced(&robbed).await?;
    // All TTLs are over at once, on the server's clock.
    server.shift_clock(120)?;
    let next = soon("it passes on", two.mutex("orders")?.acquire()).await??;
    ensure!(next.token() > robbed.token(), "with a greater token");
    two.register("balance")?.fenced(&next).await?.write("new").await?;
    ensure!(late.write("old").await.is_err(), "the fence refuses the first one");
    soon("who is told", robbed.lost()).await?;
    next.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_clock_that_is_set_back_holds_nobody_up_for_longer_than_a_ttl() -> Result<()> {
    let server = server().await?;
    let (dead, other) = (client(&url(&server)).await?, client(&url(&server)).await?);
    server.shift_clock(600)?;
    for (name, held) in [("orders-x", Mode::Exclusive), ("orders-s", Mode::Shared)] {
        // Taken by hand, so that nobody renews them: as those of the dead.
        for mode in [held, Mode::Exclusive] {
            let ttl = Ttl::new(Duration::from_secs(1)).map_err(|problem| anyhow!(problem))?;
            let owner = Arc::new(Owner::this_process());
            let claim = Claim::new(Name::new(name)?, mode, ttl, owner);
            dead.engine().claim(&Arc::new(claim)).await?;
        }
    }
    server.shift_clock(0)?;
    for name in ["orders-x", "orders-s"] {
        soon("it passes on", other.mutex(name)?.acquire()).await??.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_clock_and_a_counter_that_both_fall_back_are_refused_by_the_fence() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let register = client.register("balance")?;
    let before = client.mutex("orders")?.acquire().await?;
    register.fenced(&before).await?.write("new").await?;
    before.release().await?;
    // The one case in which a token falls: the counter is lost and the clock steps back.
    server.shift_clock(-3600)?;
    let keys = server.ask(&["KEYS", "palisade:t"]).await?;
    for key in keys.list() {
        server.ask(&["DEL", key.text()]).await?;
    }
    let fallen = client.mutex("orders")?.acquire().await?;
    ensure!(register.fenced(&fallen).await.is_err(), "nobody overwrites what is newer");
    ensure!(register.read().await?.value.as_deref() == Some(b"new"), "it is there");
    tokio::time::timeout(Duration::from_secs(5), fallen.release()).await??;
    Ok(())
}
