use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Subcommand, ValueEnum};
use palisade::{Client, Mutex, MutexGuard, Released};
use rand::RngExt;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::server::connect;
use crate::worker::Outcome;

/// How a process of this program locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lock {
    /// Palisade, with a string at the key.
    Palisade,
    /// Palisade, with Redisson's hash at the key.
    PalisadeRedisson,
    /// Not at all: to show that the counter notices.
    Bare,
}

/// What a contending process does: the same verbs as the foreign ones.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Takes turns.
    Turns {
        /// How many.
        count: u32,
        /// How long to pause between two, on average.
        pause_us: u64,
        /// What to sign turns with.
        name: String,
    },
    /// Holds the lock until told to give it back.
    Hold {
        /// The TTL.
        ttl_ms: u64,
    },
}

pub(crate) async fn run(lock: Lock, port: u16, key: &str, task: Task) -> Result<()> {
    let options = match lock {
        Lock::Bare => None,
        Lock::Palisade => Some(""),
        Lock::PalisadeRedisson => Some("dialect=redisson"),
    };
    let client = match options {
        Some(options) => Some(Client::builder().ttl(task.ttl()).connect(&url(port, options)).await?),
        None => None,
    };
    let mutex = client.as_ref().map(|client| client.mutex(key)).transpose()?;
    match task {
        Task::Turns { count, pause_us, name } => turns(mutex.as_ref(), port, count, pause_us, &name).await?,
        Task::Hold { .. } => hold(&mutex.context("without a lock there is nothing to hold")?).await?,
    }
    if let Some(client) = client {
        client.close().await;
    }
    Ok(())
}

impl Task {
    /// The foreign clients' own, unless another one is asked for.
    fn ttl(&self) -> Duration {
        match self {
            Self::Turns { .. } => Duration::from_secs(10),
            Self::Hold { ttl_ms } => Duration::from_millis(*ttl_ms),
        }
    }
}

/// The URL of the server at `port`.
pub(crate) fn url(port: u16, options: &str) -> String {
    format!("redis://127.0.0.1:{port}?{options}")
}

/// The clock that is the same for all processes of this machine.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

async fn ready() -> Result<()> {
    println!("ready");
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    Ok(())
}

async fn hold(mutex: &Mutex) -> Result<()> {
    let guard = mutex.try_acquire().await?.context("the lock is held already")?;
    ready().await?;
    let released = now();
    give_back(Some(guard)).await?;
    println!("released_ns={}", released.as_nanos());
    Ok(())
}

async fn turns(mutex: Option<&Mutex>, port: u16, count: u32, pause_us: u64, name: &str) -> Result<()> {
    let mut server = connect(port).await?;
    ready().await?;
    let mut outcome = Outcome { turns: count, overlaps: 0, max_wait: Duration::ZERO };
    for _ in 0..count {
        let start = Instant::now();
        let guard = match mutex {
            Some(mutex) => Some(mutex.acquire().await?),
            None => None,
        };
        outcome.max_wait = outcome.max_wait.max(start.elapsed());
        outcome.overlaps += u32::from(!inside(&mut server, name).await?);
        give_back(guard).await?;
        let pause = Duration::from_micros(rand::rng().random_range(0..=2 * pause_us));
        tokio::time::sleep(pause).await;
    }
    println!("{outcome}");
    Ok(())
}

async fn give_back(guard: Option<MutexGuard>) -> Result<()> {
    if let Some(guard) = guard {
        let released = guard.release().await?;
        ensure!(released == Released::InTime, "the lock was gone before it was given back");
    }
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
