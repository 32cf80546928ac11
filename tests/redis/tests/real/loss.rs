//! A server that forgets: tokens go on rising, and holders are told.

use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::{Claim, Claimed, Engine as _, Mode, Name, Owner, Token, Ttl};
use palisade_redis::{RedisConfig, RedisEngine};
use palisade_redis_trials::{client, server, soon, until, url};
use palisade_testkit::servers::{Persistence, RedisOptions, RedisServer};

async fn next_token(client: &palisade::Client) -> Result<Token> {
    let guard = soon("the lock", client.mutex("orders")?.acquire()).await??;
    let token = guard.token();
    guard.release().await?;
    Ok(token)
}

#[tokio::test]
async fn tokens_rise_whatever_the_server_forgets() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let mut last = next_token(&client).await?;
    for forget in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["FLUSHDB"]] {
        server.ask(forget).await?;
        let token = next_token(&client).await?;
        ensure!(token > last, "{token} came after {last} and {forget:?}");
        last = token;
    }
    server.kill().await?;
    server.start_again(true).await?;
    let token = next_token(&client).await?;
    ensure!(token > last, "{token} came after {last} and a restart without data");
    Ok(())
}

#[tokio::test]
async fn a_holder_is_told_when_the_server_forgot_its_lock() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    server.kill().await?;
    server.start_again(true).await?;
    soon("it is told", guard.lost()).await?;
    ensure!(!guard.is_valid(), "it is lost");
    Ok(())
}

#[tokio::test]
async fn a_lock_outlives_a_crash_of_a_server_that_keeps_its_data() -> Result<()> {
    let options = RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() };
    let server = RedisServer::start(options).await?;
    let (holder, other) = (client(&url(&server)).await?, client(&url(&server)).await?);
    let guard = holder.mutex("orders")?.acquire().await?;
    let last = guard.token();
    server.kill().await?;
    server.start_again(false).await?;
    until("it serves again", || async { Ok(other.show("orders").await.is_ok()) }).await?;
    ensure!(other.mutex("orders")?.try_acquire().await?.is_none(), "it is still held");
    ensure!(guard.is_valid(), "and its holder knows");
    ensure!(guard.release().await.is_ok(), "and can give it back");
    ensure!(next_token(&other).await? > last, "tokens rise");
    Ok(())
}

#[tokio::test]
async fn a_register_and_its_fence_outlive_a_crash_of_a_server_that_keeps_its_data() -> Result<()> {
    let options = RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() };
    let server = RedisServer::start(options).await?;
    let client = client(&url(&server)).await?;
    let register = client.register("balance")?;
    let old = client.mutex("orders")?.acquire().await?;
    let stale = register.fenced(&old).await?;
    old.release().await?;
    let new = client.mutex("orders")?.acquire().await?;
    register.fenced(&new).await?.write("1000").await?;
    server.kill().await?;
    server.start_again(false).await?;
    until("it serves again", || async { Ok(register.read().await.is_ok()) }).await?;
    ensure!(stale.write("0").await.is_err(), "the fence is still up");
    ensure!(register.read().await?.value.as_deref() == Some(b"1000"), "and the value is there");
    Ok(())
}

/// A grant that is only heard of again says nothing about the counter: the clock must be asked.
#[tokio::test]
async fn a_grant_of_an_earlier_connection_does_not_vouch_for_the_counter() -> Result<()> {
    let server = server().await?;
    let engine = RedisEngine::open(RedisConfig::parse(&url(&server))?).await?;
    let owner = Arc::new(Owner::this_process());
    let claim = |name: &str| -> Result<Arc<Claim>> {
        Ok(Arc::new(Claim::new(Name::new(name)?, Mode::Exclusive, Ttl::default(), Arc::clone(&owner))))
    };
    let token = async |claim: &Arc<Claim>| -> Result<Token> {
        soon("a grant", async {
            loop {
                match engine.claim(claim).await {
                    Ok(Claimed::Granted(grant)) => return Ok(grant.token),
                    Ok(other) => anyhow::bail!("{other:?}"),
                    Err(error) if error.is_transient() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        })
        .await?
    };
    let (known, forgotten) = (claim("known")?, claim("forgotten")?);
    let first = token(&known).await?;
    let last = token(&forgotten).await?;
    engine.withdraw(std::slice::from_ref(&forgotten)).await?;
    // As after a failover to a replica that knows of the first, and not of the last.
    server.ask(&["SET", "palisade:t", &first.to_string()]).await?;
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
    server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
    ensure!(token(&known).await? == first, "it is the same grant");
    let next = token(&claim("forgotten")?).await?;
    ensure!(next > last, "{next} after {last}");
    Ok(())
}
