//! How the server comes to our rows: what becomes slow only with time is not seen by how long it takes.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use palisade_sql_trials::{postgres, until};
use palisade_testkit::servers::{PgBouncer, PostgresServer};

const PAIRS: u64 = 100;

/// How often the table of claims was read as a whole, and how often by its index.
async fn scans(server: &PostgresServer) -> Result<(u64, u64)> {
    let sql = "SELECT seq_scan || ' ' || idx_scan FROM pg_stat_user_tables \
               WHERE schemaname = 'palisade' AND relname = 'claim'";
    let said = server.psql(sql).await?;
    let mut counts = said.split_whitespace().map(str::parse);
    let mut next = || Ok::<u64, anyhow::Error>(counts.next().transpose()?.unwrap_or(0));
    Ok((next()?, next()?))
}

async fn claims_are_found_by_their_index(server: &PostgresServer, url: &str) -> Result<()> {
    let client = palisade::connect(url).await?;
    // It was empty when the server looked, and so seems best read as a whole: with all that came and went since.
    server.psql("VACUUM ANALYZE palisade.claim").await?;
    let mutex = client.mutex("orders")?;
    let before = scans(server).await?;
    let pairs = AtomicU64::new(0);
    until("the server has told of them", || async {
        for _ in 0..PAIRS {
            mutex.acquire().await?.release().await?;
        }
        pairs.fetch_add(PAIRS, Ordering::Relaxed);
        Ok(scans(server).await?.1 >= before.1 + PAIRS)
    })
    .await?;
    let wholly = scans(server).await?.0 - before.0;
    // Whoever sweeps reads all of it now and then.
    let pairs = pairs.into_inner();
    ensure!(wholly < pairs / 10, "the table was read as a whole {wholly} times in {pairs} pairs");
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn claims_are_found_by_their_index_however_empty_their_table_was() -> Result<()> {
    let server = postgres().await?;
    claims_are_found_by_their_index(&server, &server.url()).await?;
    let pooler = PgBouncer::start(&server).await?;
    claims_are_found_by_their_index(&server, &pooler.url()).await
}
