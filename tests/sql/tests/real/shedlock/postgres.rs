//! What only PostgreSQL has of it: poolers, schemas, rows of an earlier version.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::ErrorKind;
use palisade_core::ClaimId;
use palisade_sql_trials::{client, postgres, refusal, soon};
use palisade_testkit::servers::PgBouncer;

use super::MINUTE;
use super::place::{POSTGRES_TABLE as TABLE, Place};

super::alike!(server);

async fn server() -> Result<Place> {
    Place::with_postgres(postgres().await?).await
}

#[tokio::test]
async fn rows_of_an_earlier_version_are_taken_once_their_claims_ended() -> Result<()> {
    let server = server().await?;
    let one = server.ours().await?;
    one.mutex("orders")?.acquire().await?.release().await?;
    let by = server.row("locked_by").await?;
    let mark = by.split(':').nth(1).context("a mark")?;
    let old = format!("palisade:{mark}:{}", ClaimId::random());
    let in_an_hour = server.in_seconds(3600);
    server.sql(&format!("UPDATE shedlock SET locked_by = '{old}', lock_until = {in_an_hour}")).await?;
    one.mutex("orders")?.try_acquire().await?.context("it is taken for somebody else's")?.release().await?;
    Ok(())
}

#[tokio::test]
async fn rows_are_taken_behind_a_pooler_too() -> Result<()> {
    let direct = postgres().await?;
    let pooler = PgBouncer::start(&direct).await?;
    let server = Place::with_postgres(direct).await?;
    let one = client(&format!("{}?shedlock", pooler.url())).await?;
    let mut theirs = server.theirs("a-java-service").await?;
    let guard = one.mutex("orders")?.acquire().await?;
    ensure!(!theirs.lock("orders", MINUTE).await?, "both hold");
    guard.release().await?;
    theirs.lock_soon("orders", Duration::from_secs(1)).await?;
    soon("our turn", one.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_shared_is_refused_with_what_to_do() -> Result<()> {
    let server = postgres().await?;
    let url = format!("{}?shedlock", server.url());
    let error = refusal(&url).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("CREATE TABLE"), "{error:?}");
    for (made, word) in [
        (TABLE.replace("TIMESTAMP", "TIMESTAMPTZ"), "with time zone"),
        (TABLE.replace(", PRIMARY KEY (name)", ""), "CREATE TABLE"),
        (TABLE.replace("locked_by", "owner"), "locked_by"),
        (TABLE.replace("VARCHAR(255)", "VARCHAR(60)"), "locked_by"),
    ] {
        server.psql(&made).await?;
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains(word), "{error:?}");
        server.psql("DROP TABLE shedlock").await?;
    }
    server.psql(&format!("{TABLE}; CREATE SCHEMA jobs; CREATE USER app")).await?;
    let error = refusal(&format!("{url}&namespace=shop")).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("namespace"), "{error:?}");
    let one = client(&url).await?;
    server.psql("GRANT USAGE ON SCHEMA palisade TO app").await?;
    let app = url.replace("//postgres@", "//app@");
    let error = refusal(&app).await?;
    ensure!(error.kind() == ErrorKind::Denied && error.to_string().contains("GRANT SELECT"), "{error:?}");
    server.psql("GRANT SELECT, INSERT, UPDATE ON shedlock TO app").await?;
    client(&app).await?.mutex("orders")?.acquire().await?.release().await?;
    let error = one.mutex(&"x".repeat(65))?.acquire().await.err().context("it was granted")?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("64"), "{error:?}");
    one.mutex(&"ü".repeat(64))?.acquire().await?.release().await?;
    ensure!(one.rw_lock("orders").is_err() && one.semaphore("orders", 2).is_err(), "others than exclusive");
    server.psql(&TABLE.replace("shedlock", "jobs.\"Locks\"")).await?;
    let elsewhere = client(&format!("{}?shedlock=jobs.Locks", server.url())).await?;
    let guard = elsewhere.mutex("orders")?.acquire().await?;
    ensure!(server.psql("SELECT count(*) FROM jobs.\"Locks\"").await?.trim() == "1", "its table is empty");
    guard.release().await?;
    Ok(())
}
