//! A caller's own script behind a fence.

use anyhow::{Context, Result, ensure};
use palisade_redis::{FencedScript, Stale};
use palisade_redis_trials::{client, server, url};

async fn eval(
    connection: &mut redis::aio::MultiplexedConnection,
    script: &FencedScript,
    guard: &palisade::MutexGuard,
    amount: i64,
) -> redis::RedisResult<i64> {
    redis::cmd("EVAL")
        .arg(script.text())
        .arg(2)
        .arg(script.fence())
        .arg("{card:7}:balance")
        .arg(&script.args(&guard.fencing_token())[..])
        .arg(amount)
        .query_async(connection)
        .await
}

#[tokio::test]
async fn whoever_lost_the_lock_writes_nothing() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let mut connection = redis::Client::open(url(&server))?.get_multiplexed_async_connection().await?;
    let charge =
        FencedScript::new("return redis.call('INCRBY', KEYS[2], ARGV[5])").fenced_at("{card:7}:fence");
    let mutex = client.mutex("card:7")?;
    let old = mutex.acquire().await?;
    ensure!(eval(&mut connection, &charge, &old, 500).await? == 500, "the holder writes");
    ensure!(eval(&mut connection, &charge, &old, 1).await? == 501, "and writes again");
    // As after a pause beyond the TTL: the next one has been there.
    client.evict("card:7", old.claim_id(), "test").await?;
    let new = mutex.acquire().await?;
    ensure!(eval(&mut connection, &charge, &new, 10).await? == 511, "the next holder writes");
    let refused = eval(&mut connection, &charge, &old, 7).await.err().context("the zombie is refused")?;
    let stale = Stale::from_error(&refused.to_string()).context("and told why")?;
    ensure!(stale.yours == old.token().to_string() && stale.current == new.token().to_string(), "{stale}");
    ensure!(server.ask(&["GET", "{card:7}:balance"]).await?.text() == "511", "nothing was written");
    Ok(())
}

#[tokio::test]
async fn a_script_and_a_register_can_share_a_fence() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let mut connection = redis::Client::open(url(&server))?.get_multiplexed_async_connection().await?;
    let register = client.register("card:7")?;
    let script = FencedScript::new("return 1").fenced_by("", register.name());
    let mutex = client.mutex("card:7")?;
    let old = mutex.acquire().await?;
    client.evict("card:7", old.claim_id(), "test").await?;
    let new = mutex.acquire().await?;
    register.fenced(&new).await?.write("new").await?;
    ensure!(eval(&mut connection, &script, &old, 0).await.is_err(), "the register's writer fences it off");
    ensure!(eval(&mut connection, &script, &new, 0).await? == 1, "and lets itself in");
    Ok(())
}
