//! Opens the engine at a URL, takes a lock once, and prints its token: one of many processes that come at once.

use anyhow::{Context, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).context("name an engine")?;
    let client = palisade::connect(&url).await?;
    let guard = client.mutex("opened")?.acquire().await?;
    println!("{}", guard.token());
    guard.release().await?;
    client.close().await;
    Ok(())
}
