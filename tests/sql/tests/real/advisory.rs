//! Session locks: who they exclude, what they are told, and what they refuse.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::{Client, ClientBuilder, Condition, ErrorKind};
use palisade_core::Liveness;
use palisade_sql_trials::{client, postgres, refusal, soon, until};
use palisade_testkit::servers::{PgBouncer, PostgresServer};
use sqlx::postgres::{PgAdvisoryLock, PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Either};

/// A client of session locks with claims of three seconds.
pub(crate) async fn sessions(server: &PostgresServer) -> Result<Client> {
    client(&format!("{}?mode=advisory", server.url())).await
}

/// How many session locks are held, and how many are waited for.
pub(crate) async fn locks(server: &PostgresServer) -> Result<(u32, u32)> {
    let counted = "SELECT count(*) FILTER (WHERE granted) || ' ' || count(*) FILTER (WHERE NOT granted) \
                   FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1";
    let said = server.psql(counted).await?;
    let (held, waiting) = said.trim().split_once(' ').context("two numbers")?;
    Ok((held.parse()?, waiting.parse()?))
}

#[tokio::test]
async fn locks_of_sqlx_and_ours_exclude_each_other() -> Result<()> {
    const NAME: &str = "Bestellungen – für München";
    let server = postgres().await?;
    let ours = client(&format!("{}?mode=advisory&keys=sqlx", server.url())).await?;
    let options: PgConnectOptions = server.url().parse()?;
    let theirs = PgAdvisoryLock::new(NAME);
    let guard = ours.mutex(NAME)?.acquire().await?;
    let connection: PgConnection = options.connect().await?;
    let Either::Right(connection) = theirs.try_acquire(connection).await? else {
        anyhow::bail!("both hold at once")
    };
    let mut waiting = Box::pin(theirs.acquire(connection));
    ensure!(
        tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err(),
        "both hold at once"
    );
    guard.release().await?;
    let held = soon("the turn of sqlx", waiting).await??;
    ensure!(ours.mutex(NAME)?.try_acquire().await?.is_none(), "both hold at once");
    let shown = ours.show(NAME).await?;
    ensure!(shown.holders.len() == 1 && shown.holders[0].token.is_none(), "who holds is shown as {shown:?}");
    let lock = ours.mutex(NAME)?;
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err(),
        "both hold at once"
    );
    held.release_now().await?;
    soon("our turn", waiting).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn keys_of_sqlx_and_a_namespace_do_not_go_together() -> Result<()> {
    let server = postgres().await?;
    let error = refusal(&format!("{}?mode=advisory&keys=sqlx&namespace=shop", server.url())).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("namespace"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_pooler_of_transactions_is_refused() -> Result<()> {
    let server = postgres().await?;
    let pooler = PgBouncer::start(&server).await?;
    let error = refusal(&format!("{}?mode=advisory", pooler.url())).await?;
    ensure!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("pooler"), "{error}");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_promised_is_said() -> Result<()> {
    let server = postgres().await?;
    let client = sessions(&server).await?;
    let profile = client.engine().profile();
    ensure!(profile.liveness == Liveness::Connection && !profile.evict && !profile.modes.slots);
    let refused = match client.semaphore("seats", 3) {
        Ok(semaphore) => semaphore.try_acquire().await.err(),
        Err(error) => Some(error),
    };
    ensure!(refused.is_some_and(|error| error.kind() == ErrorKind::Unsupported), "slots were granted");
    let guard = client.mutex("orders")?.acquire().await?;
    let refused = client.evict("orders", guard.claim_id(), "for a try").await.err();
    ensure!(refused.is_some_and(|error| error.kind() == ErrorKind::Unsupported), "it was evicted");
    ensure!(guard.is_valid(), "it was lost");
    Ok(())
}

#[tokio::test]
async fn a_token_is_drawn_once_the_lock_is_held() -> Result<()> {
    let server = postgres().await?;
    let (one, two) = (sessions(&server).await?, sessions(&server).await?);
    for _ in 0..5 {
        let guard = one.mutex("orders")?.acquire().await?;
        let lock = two.mutex("orders")?;
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until("it waits", || async { Ok(locks(&server).await?.1 == 1) }).await?;
        // Drawn after it began to wait, and before it is let in.
        let between = one.mutex("other")?.acquire().await?;
        guard.release().await?;
        let next = soon("the turn", waiting).await???;
        ensure!(next.token() > between.token(), "its token was drawn before it held");
        next.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn connections_have_a_bound_that_is_named() -> Result<()> {
    let server = postgres().await?;
    let holder = sessions(&server).await?;
    let guard = holder.mutex("orders")?.acquire().await?;
    let few = client(&format!("{}?mode=advisory&connections=3", server.url())).await?;
    let locks_of = |count: usize| (0..count).map(|_| few.mutex("orders")).collect::<Result<Vec<_>, _>>();
    let (waiting, one_more) = (locks_of(3)?, few.mutex("orders")?);
    let tasks: Vec<_> = waiting
        .into_iter()
        .map(|lock| tokio::spawn(async move { lock.acquire().await?.release().await }))
        .collect();
    until("three wait", || async { Ok(locks(&server).await?.1 == 3) }).await?;
    let Err(error) = soon("an answer", one_more.acquire()).await? else {
        anyhow::bail!("four wait over three")
    };
    ensure!(error.kind() == ErrorKind::Full && error.to_string().contains("connections"), "{error}");
    guard.release().await?;
    for task in tasks {
        soon("a turn", task).await???;
    }
    until("nothing is left", || async { Ok(locks(&server).await? == (0, 0)) }).await
}

#[tokio::test]
async fn a_user_who_may_only_use_the_schema_can_do_everything() -> Result<()> {
    let server = postgres().await?;
    client(&server.url()).await?.close().await;
    server.psql("CREATE USER app; GRANT USAGE ON SCHEMA palisade TO app").await?;
    let url = format!("postgres://app@{}/postgres?mode=advisory", server.address());
    let (one, two) = (client(&url).await?, client(&url).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    let lock = two.mutex("orders")?;
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err(),
        "two hold at once"
    );
    let shown = one.show("orders").await?;
    ensure!((shown.holders.len(), shown.waiters.len()) == (1, 1), "shown as {shown:?}");
    ensure!(shown.holders[0].token == Some(guard.token()), "shown as {shown:?}");
    guard.release().await?;
    soon("the turn", waiting).await??.release().await?;
    one.register("note")?.write("x", Condition::always()).await?;
    Ok(())
}

#[tokio::test]
async fn a_schema_of_the_first_version_is_brought_up_to_date() -> Result<()> {
    let server = postgres().await?;
    sessions(&server).await?.close().await;
    server
        .psql(
            "DROP TABLE palisade.session, palisade.uncrashed CASCADE; DROP FUNCTION palisade.note, palisade.sessions, palisade.session_token, \
             palisade.sweep_sessions; REVOKE USAGE ON SEQUENCE palisade.number FROM PUBLIC; UPDATE palisade.meta SET version = 1",
        )
        .await?;
    let client = ClientBuilder::default().connect(&format!("{}?mode=advisory", server.url())).await?;
    client.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}
