//! Deadlocks, serialization failures, kills: typed, and done again where that is safe.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, ensure};
use palisade_core::Token;
use palisade_fence::{
    Attempts, Backoff, Database, DbErrorKind, Fence, FenceError, OnConflict, Transaction, Versioned,
};
use palisade_fence_trials::{
    Place, Rusqlite, SqlxMysql, SqlxPostgres, TokioPostgres, number, run, soon, token,
};
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};

async fn prepared<P: Place>(place: &P) -> Result<P::Db> {
    let mut database = place.open().await?;
    let mut tx = database.begin().await?;
    Fence::create(&mut tx).await?;
    tx.commit().await?;
    run(
        &mut database,
        &["CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 0), (2, 0)"],
    )
    .await?;
    Ok(database)
}

/// Two transactions take two fences in opposite orders: one of them is told to begin anew, and both get through.
async fn a_deadlock_is_done_again<P: Place>(place: P) -> Result<()> {
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let seen = AtomicU32::new(0);
    let attempt = async |database: &mut P::Db, names: [&str; 2]| {
        let mut tx = database.begin().await?;
        Fence::new(names[0]).expect("a name").admit(&mut tx, token(1, "a")).await?;
        // Until both have begun: the second fence is then the other's, unless this is a second try.
        seen.fetch_add(1, Ordering::Relaxed);
        while seen.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        Fence::new(names[1]).expect("a name").admit(&mut tx, token(1, "a")).await?;
        tx.execute("UPDATE t SET n = n + 1 WHERE id = 1", &[]).await?;
        tx.commit().await?;
        Ok::<(), FenceError>(())
    };
    let work = async |database: &mut P::Db, names: [&str; 2]| {
        let mut attempts = Attempts::new(Backoff::default());
        loop {
            match attempt(database, names).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    };
    let both = futures::future::join(work(&mut one, ["x", "y"]), work(&mut two, ["y", "x"]));
    let (first, second) = soon("both", both).await?;
    first?;
    second?;
    ensure!(seen.load(Ordering::Relaxed) > 2, "one was done again");
    ensure!(number(&mut one, "SELECT n FROM t WHERE id = 1").await? == 2, "both counted, once");
    Ok(())
}

async fn sixteen_make_the_tables_at_once<P: Place>(place: P) -> Result<()> {
    let mut makers = Vec::new();
    for _ in 0..16 {
        let mut database = place.open().await?;
        makers.push(async move {
            let mut tx = database.begin().await?;
            Fence::create(&mut tx).await?;
            tx.commit().await
        });
    }
    soon("all", futures::future::try_join_all(makers)).await??;
    Ok(())
}

palisade_fence_trials::on_every_server!(a_deadlock_is_done_again, sixteen_make_the_tables_at_once);

async fn a_serialization_failure_is_a_retry<P: Place>(place: P) -> Result<()> {
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let fence = Fence::new("r")?;
    let mut tx = one.begin().await?;
    tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", &[]).await?;
    tx.query("SELECT n FROM t", &[]).await?;
    let mut other = two.begin().await?;
    fence.admit(&mut other, token(1, "a")).await?;
    other.commit().await?;
    match fence.admit(&mut tx, token(2, "a")).await {
        Err(error) => ensure!(error.is_retry(), "{error}"),
        Ok(()) => anyhow::bail!("it cannot see what it must compare with"),
    }
    Ok(())
}

/// The same token comes again, and so nothing of the fence changes; but what is behind it does.
async fn who_was_overtaken_by_the_same_token_begins_anew<P: Place>(place: P, how: [&str; 2]) -> Result<()> {
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let fence = Fence::new("r")?;
    let mut first = one.begin().await?;
    fence.admit(&mut first, token(1, "a")).await?;
    first.commit().await?;
    for opens in [false, true] {
        let mut tx = one.begin().await?;
        tx.execute(how[0], &[]).await?;
        tx.query(how[1], &[]).await?;
        let mut other = two.begin().await?;
        if opens {
            fence.open(&mut other, token(1, "a")).await?;
        } else {
            fence.admit(&mut other, token(1, "a")).await?;
        }
        other.execute("UPDATE t SET n = n + 1 WHERE id = 1", &[]).await?;
        other.commit().await?;
        match fence.admit(&mut tx, token(1, "a")).await {
            Err(error) => ensure!(error.is_retry(), "{error}"),
            Ok(()) => anyhow::bail!("it reads what was there before the other"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_snapshot_that_is_too_old_is_a_retry() -> Result<()> {
    a_serialization_failure_is_a_retry(SqlxPostgres::new().await?).await?;
    a_serialization_failure_is_a_retry(TokioPostgres::new().await?).await?;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let level = format!("SET TRANSACTION ISOLATION LEVEL {level}");
        let how = [&*level, "SELECT n FROM t"];
        who_was_overtaken_by_the_same_token_begins_anew(SqlxPostgres::new().await?, how).await?;
        who_was_overtaken_by_the_same_token_begins_anew(TokioPostgres::new().await?, how).await?;
    }
    Ok(())
}

/// On MySQL what is read after the admission is the latest, if nothing was read before it.
async fn a_wait_for_the_same_token_shows_what_it_wrote<P: Place>(place: P) -> Result<()> {
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let fence = Fence::new("r")?;
    let mut first = one.begin().await?;
    fence.admit(&mut first, token(1, "a")).await?;
    first.commit().await?;
    let mut before = one.begin().await?;
    fence.admit(&mut before, token(1, "a")).await?;
    before.execute("UPDATE t SET n = n + 1 WHERE id = 1", &[]).await?;
    let waits = async {
        let mut tx = two.begin().await?;
        fence.admit(&mut tx, token(1, "a")).await?;
        let rows = tx.query("SELECT n FROM t WHERE id = 1", &[]).await?;
        Ok::<_, FenceError>(rows[0][0].as_i64())
    };
    // It may come before the other waits: then nothing is shown, but nothing is wrong.
    let lets_go = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        before.commit().await
    };
    let (seen, committed) = soon("both", futures::future::join(waits, lets_go)).await?;
    committed?;
    ensure!(seen? == Some(1), "what was written before it was admitted");
    Ok(())
}

palisade_fence_trials::on_every_driver!(@ sqlx_mysql_waits, SqlxMysql, a_wait_for_the_same_token_shows_what_it_wrote);

#[tokio::test]
async fn a_snapshot_that_is_too_old_is_a_retry_on_sqlite() -> Result<()> {
    let place = Rusqlite::new().await?;
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    // As callers do who begin with a plain BEGIN, and read first.
    let mut tx = one.transaction()?;
    tx.query("SELECT n FROM t", &[]).await?;
    let fence = Fence::new("r")?;
    let mut other = two.begin().await?;
    fence.admit(&mut other, token(1, "a")).await?;
    other.commit()?;
    let told = fence.admit(&mut tx, token(2, "a")).await;
    ensure!(told.as_ref().is_err_and(FenceError::is_retry), "{told:?}");
    drop(tx);
    // Also if the same token came again, and nothing of the fence changed, but what is behind it did.
    let mut tx = one.transaction()?;
    tx.query("SELECT n FROM t", &[]).await?;
    let mut other = two.begin().await?;
    fence.admit(&mut other, token(1, "a")).await?;
    Transaction::execute(&mut other, "UPDATE t SET n = n + 1 WHERE id = 1", &[]).await?;
    other.commit()?;
    let told = fence.admit(&mut tx, token(1, "a")).await;
    ensure!(told.as_ref().is_err_and(FenceError::is_retry), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_timeout_is_told() -> Result<()> {
    let place = SqlxPostgres::new().await?;
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let fence = Fence::new("r")?;
    let mut holder = Database::begin(&mut one).await?;
    fence.admit(&mut holder, token(1, "a")).await?;
    for (setting, kind) in
        [("lock_timeout", DbErrorKind::LockTimeout), ("statement_timeout", DbErrorKind::Cancelled)]
    {
        let mut tx = Database::begin(&mut two).await?;
        tx.execute(&format!("SET LOCAL {setting} = '50ms'"), &[]).await?;
        match fence.admit(&mut tx, token(2, "a")).await {
            Err(FenceError::Db(error)) => ensure!(error.kind() == kind, "{error}"),
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_timeout_is_told_by_mariadb() -> Result<()> {
    let place = SqlxMysql::new().await?;
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let fence = Fence::new("r")?;
    let mut holder = Database::begin(&mut one).await?;
    fence.admit(&mut holder, token(1, "a")).await?;
    let mut tx = Database::begin(&mut two).await?;
    tx.execute("SET innodb_lock_wait_timeout = 1", &[]).await?;
    match fence.admit(&mut tx, token(2, "a")).await {
        Err(FenceError::Db(error)) => ensure!(error.kind() == DbErrorKind::LockTimeout, "{error}"),
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}

/// Futures of async drivers can be spawned.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_can_be_spawned() -> Result<()> {
    let place = SqlxPostgres::new().await?;
    let mut database = prepared(&place).await?;
    let written = tokio::spawn(async move {
        let mut tx = Database::begin(&mut database).await?;
        Fence::new("r").expect("a name").admit(&mut tx, token(1, "a")).await?;
        Transaction::commit(tx).await?;
        let row = Versioned::table("t")?.key("id")?.version("n")?;
        let policy = OnConflict::Retry(Backoff::default());
        row.update(&mut database, &[1.into()], policy, |_| vec![]).await.map_err(anyhow::Error::from)
    });
    ensure!(written.await??.version().as_i64() == Some(1), "it was written");
    Ok(())
}

/// What was admitted and not committed when the server was killed was never there; what was committed stays.
async fn survives<D: Database>(
    open: impl AsyncFn() -> Result<D>,
    kill_and_start: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let mut database = open().await?;
    let mut tx = database.begin().await?;
    Fence::create(&mut tx).await?;
    tx.commit().await?;
    let fence = Fence::new("r")?;
    let mut tx = database.begin().await?;
    fence.admit(&mut tx, token(34, "a")).await?;
    tx.commit().await?;
    let mut cut_short = database.begin().await?;
    fence.admit(&mut cut_short, token(35, "a")).await?;
    kill_and_start().await?;
    ensure!(cut_short.commit().await.is_err(), "it ended with the server");
    let mut database = open().await?;
    let mut tx = database.begin().await?;
    ensure!(fence.mark(&mut tx, None).await?.map(Token::get) == Some(34), "35 was never there");
    ensure!(
        matches!(fence.admit(&mut tx, token(33, "a")).await, Err(FenceError::Stale { .. })),
        "34 still is"
    );
    Ok(())
}

#[tokio::test]
async fn a_fence_survives_kill_9_of_postgres() -> Result<()> {
    let server = PostgresServer::start(PostgresOptions::default()).await?;
    let open = async || Ok(sqlx::PgPool::connect(&server.url()).await?);
    let restart = async || {
        server.kill().await?;
        server.start_again(false).await
    };
    survives(open, restart).await
}

#[tokio::test]
async fn a_fence_survives_kill_9_of_mariadb() -> Result<()> {
    let server = MariaDbServer::start(MariaDbOptions::default()).await?;
    let open = async || Ok(sqlx::MySqlPool::connect(&server.url()).await?);
    let restart = async || {
        server.kill().await?;
        server.start_again(false).await
    };
    survives(open, restart).await
}

#[tokio::test]
async fn who_may_make_no_tables_can_use_them() -> Result<()> {
    let server = PostgresServer::start(PostgresOptions::default()).await?;
    let mut owner = sqlx::PgPool::connect(&server.url()).await?;
    let mut tx = Database::begin(&mut owner).await?;
    Fence::create(&mut tx).await?;
    Transaction::commit(tx).await?;
    let grant = "CREATE ROLE clerk LOGIN; GRANT SELECT, INSERT, UPDATE ON palisade_fence TO clerk";
    server.psql(grant).await?;
    let mut clerk = sqlx::PgPool::connect(&server.url().replace("postgres@", "clerk@")).await?;
    let mut tx = Database::begin(&mut clerk).await?;
    Fence::new("r")?.admit(&mut tx, token(1, "a")).await?;
    Transaction::commit(tx).await?;
    Ok(())
}
