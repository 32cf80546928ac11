//! Start together, finish together: three workers at a barrier, and a latch for who waits outside.
//!
//! `cargo run -p palisade --example barrier_latch [URL]`

use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> palisade::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let client = palisade::connect(&url).await?;
    let done = client.latch("example/loaded", 3)?;
    done.reset().await?;

    let mut workers = JoinSet::new();
    for number in 1..=3 {
        let (barrier, done) = (client.barrier("example/load", 3)?, done.clone());
        workers.spawn(async move {
            println!("worker {number} is ready");
            let inside = barrier.enter().await?;
            println!("worker {number} works");
            let left = done.count_down().await?;
            println!("worker {number} is done, {left} to go");
            inside.leave().await
        });
    }
    done.wait().await?;
    println!("all work is done");
    workers.join_all().await.into_iter().collect::<palisade::Result<()>>()
}
