//! One process of the flash campaign: `campaign-worker URL NUMBER`.

use anyhow::{Context, Result, bail};
use palisade_fence_trials::campaign::{CLIENTS, give, give_on_redis};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().context("campaign-worker URL NUMBER")?;
    let process: usize = args.next().context("campaign-worker URL NUMBER")?.parse()?;
    let most = u32::try_from(CLIENTS)?;
    match url.split(':').next() {
        Some("postgres") => {
            give(PgPoolOptions::new().max_connections(most).connect(&url).await?, process).await
        }
        Some("mysql") => {
            give(MySqlPoolOptions::new().max_connections(most).connect(&url).await?, process).await
        }
        Some("redis") => {
            let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
            give_on_redis(redis, process).await
        }
        _ => bail!("no such database"),
    }
}
