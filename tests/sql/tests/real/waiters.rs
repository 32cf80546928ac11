//! Many who wait: each is told once, and nobody else is woken.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use palisade::ClientBuilder;
use palisade_core::Wakeup;
use palisade_sql_trials::{postgres, until};
use palisade_testkit::servers::PgBouncer;

const WAITERS: usize = 200;

async fn all_get_their_turn(url: &str) -> Result<()> {
    let client = Arc::new(ClientBuilder::default().ttl(Duration::from_mins(1)).connect(url).await?);
    let guard = client.mutex("orders")?.acquire().await?;
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let guard = client.mutex("orders")?.acquire().await?;
                let token = guard.token();
                guard.release().await?;
                anyhow::Ok(token)
            })
        })
        .collect();
    until("all wait", || async { Ok(client.show("orders").await?.waiters.len() == WAITERS) }).await?;
    guard.release().await?;
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(tokio::time::timeout(Duration::from_mins(2), task).await???);
    }
    tokens.sort_unstable();
    tokens.dedup();
    ensure!(tokens.len() == WAITERS, "two have one token");
    Ok(())
}

#[tokio::test]
async fn two_hundred_are_told_one_at_a_time() -> Result<()> {
    let server = postgres().await?;
    all_get_their_turn(&server.url()).await?;
    let left = server.psql("SELECT count(*) FROM palisade.claim").await?;
    ensure!(left.trim() == "0", "{left} claims are left");
    Ok(())
}

#[tokio::test]
async fn a_pooler_is_found_and_waiting_polls() -> Result<()> {
    let server = postgres().await?;
    let pooler = PgBouncer::start(&server).await?;
    let client = palisade::connect(&pooler.url()).await?;
    ensure!(client.engine().profile().wakeup != Wakeup::Push, "it says that it is told");
    let told = format!("{}?listen={}", pooler.url(), server.address());
    let client = palisade::connect(&told).await?;
    ensure!(client.engine().profile().wakeup == Wakeup::Push, "it says that it polls");
    // A way that leads through the pooler again is none.
    let error = palisade::connect(&format!("{}?listen={}", pooler.url(), pooler.address())).await.err();
    ensure!(
        error.is_some_and(|error| error.to_string().contains("listen")),
        "what is not heard was believed"
    );
    all_get_their_turn(&told).await
}
