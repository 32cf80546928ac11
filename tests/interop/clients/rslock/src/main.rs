//! rslock as a foreign client; the protocol is in `../README.md`.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::RngExt;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use rslock::LockManager;

const TTL: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [port, key, verb, count, pause_us, name] = &args[..] else { bail!("see ../README.md") };
    anyhow::ensure!(verb == "turns", "there is no {verb}");
    turns(&format!("redis://127.0.0.1:{port}"), key, count.parse()?, pause_us.parse()?, name).await
}

async fn turns(url: &str, key: &str, count: u32, pause_us: u64, name: &str) -> Result<()> {
    let mut server = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut locks = LockManager::new(vec![url.to_owned()]);
    // The defaults, three tries at most 200 ms apart, would give up in the crowd.
    locks.set_retry(1_000_000, Duration::from_millis(4));
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    let (mut overlaps, mut max_wait) = (0, Duration::ZERO);
    for _ in 0..count {
        let start = Instant::now();
        let lock = locks.lock(key, TTL).await.context("rslock gave up waiting")?;
        max_wait = max_wait.max(start.elapsed());
        overlaps += u32::from(!inside(&mut server, name).await?);
        locks.unlock(&lock).await;
        let pause = Duration::from_micros(rand::rng().random_range(0..=2 * pause_us));
        tokio::time::sleep(pause).await;
    }
    println!("turns={count} overlaps={overlaps} max_wait_us={}", max_wait.as_micros());
    Ok(())
}

/// Counts one up in two steps, and tells whether nobody else was inside.
async fn inside(server: &mut MultiplexedConnection, name: &str) -> Result<bool> {
    let alone: bool = server.set_nx("inside", name).await?;
    let before: Option<u64> = server.get("counter").await?;
    tokio::task::yield_now().await;
    let _: () = server.set("counter", before.unwrap_or(0) + 1).await?;
    let _: () = server.rpush("order", name).await?;
    let _: () = server.del("inside").await?;
    Ok(alone)
}
