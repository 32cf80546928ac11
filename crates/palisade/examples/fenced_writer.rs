//! Why a lock alone is not enough: a holder is paused, its lock passes on, and it wakes up in the
//! belief that it still holds. Its late write is refused, because it carries the older token.
//!
//! `cargo run -p palisade --example fenced_writer [URL]`

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use palisade::{Client, Result, Stale, Token};

/// Short, so that the example is; a paused holder holds others up for this long.
const TTL: Duration = Duration::from_millis(200);

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let (holds, held) = mpsc::channel();
    let (wake, woken) = mpsc::channel();

    // A thread with a runtime of its own, so that it can be stopped whole, renewal included: as by
    // a garbage collector, a live migration, or a closed laptop.
    let zombie_url = url.clone();
    let zombie = thread::spawn(move || block_on(zombie(&zombie_url, &holds, &woken)));
    let older = held.recv().expect("the zombie takes the lock first");
    let newer = block_on(successor(&url))?;
    assert!(older < newer);

    wake.send(()).expect("the zombie still waits");
    zombie.join().expect("the zombie does not panic")
}

async fn zombie(url: &str, holds: &mpsc::Sender<Token>, woken: &mpsc::Receiver<()>) -> Result<()> {
    let client = Client::builder().ttl(TTL).connect(url).await?;
    let guard = client.mutex("example/report")?.acquire().await?;
    let report = client.register("example/report")?.fenced(&guard).await?;
    println!("zombie:    holds the lock with token {}, and is paused", guard.token());
    holds.send(guard.token()).expect("the example still runs");

    // Blocks the thread, not the task: nothing of this client runs until it is woken.
    woken.recv().expect("the example wakes it");
    println!("zombie:    wakes up; its guard says valid = {}", guard.is_valid());
    match report.write("the zombie's report").await {
        Err(Stale::Fenced { current, found, .. }) => {
            println!("zombie:    its write is refused: token {current} has been here");
            println!("the report is {:?}", found.value.unwrap_or_default());
            Ok(())
        }
        other => panic!("a write with an older token must be refused, but: {other:?}"),
    }
}

async fn successor(url: &str) -> Result<Token> {
    let client = Client::builder().ttl(TTL).connect(url).await?;
    let guard = client.mutex("example/report")?.acquire().await?;
    println!("successor: waited for the TTL and holds the lock with token {}", guard.token());
    client.register("example/report")?.fenced(&guard).await?.write("the successor's report").await?;
    let token = guard.token();
    guard.release().await?;
    Ok(token)
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
