//! The schema makes itself, once, however many come.

use anyhow::{Result, ensure};
use palisade::ErrorKind;
use palisade_sql_trials::{client, postgres, refusal};

use crate::alike::sixteen_come_at_once;

#[tokio::test]
async fn sixteen_processes_make_one_schema() -> Result<()> {
    let server = postgres().await?;
    sixteen_come_at_once(&server.url()).await?;
    let made = server.psql("SELECT count(*) FROM palisade.meta").await?;
    ensure!(made.trim() == "1", "it was made {made} times");
    Ok(())
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_both_versions() -> Result<()> {
    let server = postgres().await?;
    client(&server.url()).await?;
    server.psql("UPDATE palisade.meta SET version = 77").await?;
    let error = refusal(&server.url()).await?;
    ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
    ensure!(error.to_string().contains("77") && error.to_string().contains("knows version"), "{error}");
    Ok(())
}

#[tokio::test]
async fn what_is_printed_is_what_is_needed() -> Result<()> {
    let server = postgres().await?;
    server.psql(&palisade::postgres_schema("my \"locks\"")).await?;
    server.psql("CREATE USER app; GRANT USAGE ON SCHEMA \"my \"\"locks\"\"\" TO app").await?;
    let url = format!("postgres://app@{}/postgres?schema=my%20%22locks%22", server.address());
    client(&url).await?.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn two_schemas_do_not_see_each_other() -> Result<()> {
    let server = postgres().await?;
    let one = client(&server.url()).await?;
    let other = client(&format!("{}?schema=other", server.url())).await?;
    let _held = one.mutex("orders")?.acquire().await?;
    ensure!(other.mutex("orders")?.try_acquire().await?.is_some(), "they share a lock");
    ensure!(one.engine().source() != other.engine().source(), "their tokens do not compare");
    Ok(())
}

#[tokio::test]
async fn a_dump_that_is_restored_is_another_source() -> Result<()> {
    let server = postgres().await?;
    let before = client(&server.url()).await?.engine().source();
    let again = client(&server.url()).await?.engine().source();
    ensure!(before == again, "{before} became {again}");
    // What a restore does: everything is made anew, by the same names.
    server.psql("DROP SCHEMA palisade CASCADE").await?;
    let after = client(&server.url()).await?.engine().source();
    ensure!(before != after, "it is still {after}, though its numbers began anew");
    Ok(())
}
