//! One at a time: take a lock, see that others cannot, give it back, and run work under it.
//!
//! `cargo run -p palisade --example mutex [URL]`

use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let here = palisade::Client::builder().label("here").connect(&url).await?;
    let there = palisade::Client::builder().label("there").connect(&url).await?;

    let guard = here.mutex("example/invoice")?.acquire().await?;
    println!("here:  holds the invoice with token {}", guard.token());

    // Held by another is an answer, not an error. Whoever waits can see for whom.
    assert!(there.mutex("example/invoice")?.try_acquire().await?.is_none());
    let holders = there.show("example/invoice").await?.holders;
    println!("there: not now, it is held by {:?}", holders[0].owner.label);

    let waiting = tokio::spawn(async move {
        let guard = there.mutex("example/invoice")?.acquire_within(Duration::from_secs(10)).await?;
        let Some(guard) = guard else { return Ok(None) };
        let token = guard.token();
        guard.release().await?;
        Ok::<_, palisade::Error>(Some(token))
    });
    guard.release().await?;
    println!("there: waited its turn and got token {:?}", waiting.await??);

    // Taken, run, released: also when the work fails, panics or is cancelled. If the lock were
    // lost, the work would be stopped before anyone else could hold it.
    let total = here.mutex("example/invoice")?.run(|_| async { 40 + 2 }).await?;
    println!("here:  computed {total} under the lock");
    Ok(())
}
