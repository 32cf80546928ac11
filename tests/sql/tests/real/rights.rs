//! Users who may little, and passwords that nobody sees.

use anyhow::{Context, Result, ensure};
use palisade::{Condition, ErrorKind};
use palisade_sql_trials::{SECRET, client, refusal};
use palisade_testkit::servers::{PostgresOptions, PostgresServer};

/// A server that trusts its superuser, and asks everybody else for a password.
async fn server() -> Result<PostgresServer> {
    let hba = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n".to_owned();
    let server =
        PostgresServer::start(PostgresOptions { hba: Some(hba), ..PostgresOptions::default() }).await?;
    server.psql(&format!("CREATE USER app PASSWORD '{SECRET}'")).await?;
    Ok(server)
}

fn url(server: &PostgresServer, login: &str) -> String {
    format!("postgres://{login}@{}/postgres", server.address())
}

#[tokio::test]
async fn a_user_who_may_only_use_the_schema_can_do_everything() -> Result<()> {
    let server = server().await?;
    let login = format!("app:{SECRET}");
    // There is no schema yet, and this user may not make one.
    let error = refusal(&url(&server, &login)).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(error.to_string().contains("palisade schema"), "{error}");
    client(&server.url()).await?.close().await;
    // There is one, and this user may not use it.
    let error = refusal(&url(&server, &login)).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(error.to_string().contains("GRANT USAGE"), "{error}");
    server.psql("GRANT USAGE ON SCHEMA palisade TO app").await?;
    let (one, two) = (client(&url(&server, &login)).await?, client(&url(&server, &login)).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    let lock = two.mutex("orders")?;
    let (released, next) = futures::join!(guard.release(), lock.acquire());
    released?;
    let next = next?;
    one.register("note")?.write("x", Condition::always()).await?;
    ensure!(one.show("orders").await?.holders.len() == 1, "nobody is shown");
    one.evict("orders", next.claim_id(), "for a try").await?;
    // And nothing but that.
    for statement in
        ["SELECT * FROM palisade.claim", "DELETE FROM palisade.grave", "SELECT setval('palisade.number', 1)"]
    {
        let tried = server.psql(&format!("SET ROLE app; {statement}")).await;
        let said = tried.err().with_context(|| format!("{statement} was done"))?.to_string();
        ensure!(said.contains("permission denied"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_password_is_asked_for_and_never_shown() -> Result<()> {
    let server = server().await?;
    server.psql("GRANT CREATE ON DATABASE postgres TO app").await?;
    let good = client(&url(&server, &format!("app:{SECRET}"))).await?;
    ensure!(!format!("{good:?} {:?}", good.engine()).contains(SECRET), "Debug shows it");
    for login in [format!("app:{SECRET}x"), format!("nobody:{SECRET}"), "app".to_owned()] {
        let error = refusal(&url(&server, &login)).await?;
        ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
        ensure!(error.to_string().contains("password"), "{error}");
    }
    let error = refusal(&format!("{}?password-file=/nowhere", url(&server, "app"))).await?;
    ensure!(error.kind() == ErrorKind::Invalid, "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_database_that_is_not_there_and_a_port_that_nobody_has() -> Result<()> {
    let server = server().await?;
    let error = refusal(&format!("postgres://postgres:{SECRET}@{}/nothing", server.address())).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("nothing"), "{error:?}");
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let error = refusal(&format!("postgres://postgres:{SECRET}@{free}")).await?;
    ensure!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("nobody listens"),
        "{error:?}"
    );
    Ok(())
}

/// What a role or a database may be set to must not change what is decided.
#[tokio::test]
async fn settings_of_a_role_do_not_weaken_what_is_promised() -> Result<()> {
    let server = server().await?;
    client(&server.url()).await?.close().await;
    server.psql("GRANT USAGE ON SCHEMA palisade TO app; ALTER ROLE app SET synchronous_commit = off; ALTER ROLE app SET search_path = nowhere; ALTER ROLE app SET statement_timeout = '5s'").await?;
    let login = format!("app:{SECRET}");
    let app = client(&url(&server, &login)).await?;
    app.mutex("orders")?.acquire().await?.release().await?;
    let asked = "SET SESSION AUTHORIZATION app; SET synchronous_commit = off; BEGIN; SELECT count(*) FROM palisade.leave('', '', \
                 ARRAY['orders'], ARRAY[gen_random_uuid()], ARRAY[NULL::bigint], ARRAY[false], ARRAY[1000::bigint]); \
                 SELECT 'commits are ' || current_setting('synchronous_commit'); ROLLBACK";
    let waits = server.psql(asked).await?;
    ensure!(waits.contains("commits are on"), "what is told may be forgotten: {waits}");
    server.psql("ALTER ROLE app SET default_transaction_isolation = 'repeatable read'").await?;
    let app = client(&url(&server, &login)).await?;
    let error = app.mutex("orders")?.acquire().await.err().context("a stale snapshot was believed")?;
    ensure!(
        error.kind() == ErrorKind::Unsupported && error.to_string().contains("read committed"),
        "{error:?}"
    );
    Ok(())
}
