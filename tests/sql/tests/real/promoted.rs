//! Servers that were replicas, and servers that still are.

use std::fs;

use anyhow::{Result, ensure};
use palisade::ErrorKind;
use palisade_sql_trials::{client, postgres, refusal, until};

#[tokio::test]
async fn tokens_of_a_promoted_replica_are_greater_than_all_that_were_lost() -> Result<()> {
    let server = postgres().await?;
    let one = client(&server.url()).await?;
    let before = one.mutex("orders")?.acquire().await?;
    let (token, source) = (before.token(), one.engine().source());
    before.release().await?;
    one.close().await;
    // The same data as a replica, which goes its own way when it is promoted.
    server.terminate().await?;
    fs::write(server.data().join("standby.signal"), "")?;
    server.start_again(false).await?;
    let error = refusal(&server.url()).await?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("replica"), "{error:?}");
    server.psql("SELECT pg_promote()").await?;
    until("it decides", || async { Ok(server.psql("SELECT pg_is_in_recovery()").await?.trim() == "f") })
        .await?;
    // Before anybody else draws one, in a session that is set up as each of ours is: there nobody looks at the timeline again.
    let asked = "SET search_path = pg_catalog, palisade; SELECT palisade.set_up_session(); \
                 SELECT 'it is ' || is_set_up() || ' ' || current_setting('lock_timeout'); \
                 SELECT palisade.take('', 'me', '{}', 'first', gen_random_uuid(), 1::smallint, 0::smallint, 0::smallint, 0, \
                 15000000, 0, NULL)";
    let said = server.psql(asked).await?;
    ensure!(said.contains("it is true 1s"), "it was not set up: {said}");
    let first = said.lines().find_map(|line| line.strip_prefix("g|")?.split('|').nth(1)?.parse::<u64>().ok());
    ensure!(first.is_some_and(|token| token >> 52 == 2), "a token of an earlier timeline: {said}");
    let two = client(&server.url()).await?;
    ensure!(two.engine().source() == source, "the source is another one");
    let after = two.mutex("orders")?.acquire().await?;
    // Whatever the old one gave that this one has not got: the next timeline is above it.
    let timeline = |token: u64| token >> 52;
    ensure!(timeline(token.get()) == 1, "{token} is not of the first timeline");
    ensure!(timeline(after.token().get()) == 2, "{} is not of the second timeline", after.token());
    Ok(())
}

#[tokio::test]
async fn a_client_goes_on_with_the_server_that_was_promoted() -> Result<()> {
    let server = postgres().await?;
    let client = palisade::ClientBuilder::default()
        .ttl(std::time::Duration::from_secs(20))
        .connect(&server.url())
        .await?;
    let guard = client.mutex("orders")?.acquire().await?;
    server.terminate().await?;
    fs::write(server.data().join("standby.signal"), "")?;
    server.start_again(false).await?;
    server.psql("SELECT pg_promote()").await?;
    until("it decides again", || async { Ok(client.show("orders").await.is_ok()) }).await?;
    ensure!(guard.is_valid(), "it was lost");
    let (token, resource) = (guard.token(), client.mutex("orders")?);
    guard.release().await?;
    ensure!(resource.acquire().await?.token() > token, "the token fell");
    Ok(())
}
