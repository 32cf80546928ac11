//! Once per interval: a cron job that every host starts and only one runs.
//!
//! `cargo run -p palisade --example run_once [URL]`

use std::time::Duration;

use palisade::{Client, OnceOutcome};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let (one, two) = (palisade::connect(&url).await?, palisade::connect(&url).await?);

    let (first, second) = tokio::join!(nightly("host 1", &one), nightly("host 2", &two));
    let ran = [first?, second?].into_iter().filter(|ran| *ran).count();
    assert!(ran <= 1, "the job ran {ran} times");
    // A daemon whose clock is a little late, or a process that died: still not again.
    assert!(!nightly("host 2, later", &two).await?);
    Ok(())
}

async fn nightly(host: &str, client: &Client) -> Result<bool, palisade::Stopped> {
    let job = client.once("example/nightly-report").map_err(palisade::Stopped::NotTaken)?;
    let job = job.at_least(Duration::from_mins(1)).at_most(Duration::from_mins(10));
    let outcome = job.run(|guard| {
        let token = guard.token();
        async move { format!("sent the report with token {token}") }
    });
    match outcome.await? {
        OnceOutcome::Ran(what) => println!("{host}: {what}"),
        OnceOutcome::Running => {
            println!("{host}: another runs it right now");
            return Ok(false);
        }
        OnceOutcome::TooSoon { ready_in } => {
            println!("{host}: too soon, due again in {} s", ready_in.as_secs());
            return Ok(false);
        }
    }
    Ok(true)
}
