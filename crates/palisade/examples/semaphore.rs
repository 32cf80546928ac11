//! At most N at once: thirty calls to a partner that allows three.
//!
//! `cargo run -p palisade --example semaphore [URL]`

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> palisade::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let client = palisade::connect(&url).await?;
    let calls = client.semaphore("example/partner-api", 3)?;

    let mut tasks = JoinSet::new();
    for _ in 0..30 {
        let calls = calls.clone();
        tasks.spawn(async move {
            // The slot is a number that no other holder has: use it to pick a connection or a port.
            let slot = calls.acquire().await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            let number = slot.slot();
            slot.release().await?;
            Ok::<_, palisade::Error>(number)
        });
    }
    let slots = tasks.join_all().await.into_iter().collect::<palisade::Result<Vec<_>>>()?;
    let used: BTreeSet<u32> = slots.iter().copied().collect();
    println!("{} calls went through slots {used:?}", slots.len());
    assert!(used.iter().all(|slot| *slot < 3));
    Ok(())
}
