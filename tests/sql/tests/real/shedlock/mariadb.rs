//! What only MySQL and MariaDB have of it: collations, time zones, other engines.

use anyhow::{Context, Result, ensure};
use palisade::ErrorKind;
use palisade_sql_trials::{SECRET, client, mariadb, refusal, soon};
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer};

use super::MINUTE;
use super::place::{MARIADB_TABLE as TABLE, PATIENT, Place};

super::alike!(server);

async fn server() -> Result<Place> {
    Place::with_mariadb(mariadb().await?).await
}

/// ShedLock's table takes them for the same, as servers do unless told otherwise: they have one row, and who has it keeps it.
#[tokio::test]
async fn names_that_share_a_row_exclude_each_other() -> Result<()> {
    let server = server().await?;
    // A server that was told nothing has latin1.
    server.sql("ALTER TABLE shedlock CONVERT TO CHARACTER SET utf8mb4").await?;
    let (one, two) = (server.patient().await?, server.patient().await?);
    let mut theirs = server.theirs("a-java-service").await?;
    for (name, same) in [("orders", "ORDERS"), ("café", "cafe"), ("orders", "orders ")] {
        let guard = one.mutex(name)?.acquire().await?;
        ensure!(two.mutex(same)?.try_acquire().await?.is_none(), "{name:?} and {same:?} have one row");
        let seen = two.show(same).await?;
        let label = seen.holders.first().and_then(|holder| holder.owner.label.clone()).unwrap_or_default();
        ensure!(label.contains(&format!("{name:?}")), "shown as {seen:?}");
        let lock = two.mutex(same)?;
        let waits = tokio::spawn(async move { lock.acquire().await });
        // Renewed all the while, and not taken away: each has been by the time that the other has waited.
        palisade_sql_trials::until("it waits", async || Ok(two.show(same).await?.waiters.len() == 1)).await?;
        ensure!(!theirs.lock(same, MINUTE).await? && guard.is_valid(), "{name:?} was taken away");
        guard.release().await?;
        let next = soon("the turn of the other", waits).await???;
        ensure!(one.mutex(name)?.try_acquire().await?.is_none(), "{name:?} and {same:?} have one row");
        ensure!(!theirs.lock(name, MINUTE).await?, "both hold");
        next.release().await?;
        ensure!(theirs.lock(name, MINUTE).await?, "what was released is not free");
        theirs.unlock(name, std::time::Duration::ZERO).await?;
    }
    // As the page says.
    server.sql("ALTER TABLE shedlock MODIFY name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL").await?;
    let one = server.ours().await?;
    let mut guards = Vec::new();
    for name in ["orders", "ORDERS", "orders ", "café", "cafe"] {
        guards.push(one.mutex(name)?.try_acquire().await?.with_context(|| format!("{name:?} is another"))?);
    }
    Ok(())
}

/// What a server and its sessions are set to must not change whose row it is.
#[tokio::test]
async fn time_zones_and_modes_of_the_server_do_not_matter() -> Result<()> {
    for mode in ["", "SIMULTANEOUS_ASSIGNMENT", "ANSI"] {
        on_a_server_of_its_own(mode).await?;
    }
    Ok(())
}

async fn on_a_server_of_its_own(mode: &str) -> Result<()> {
    let mode = format!("--sql-mode={mode}");
    let args = [
        "--transaction-isolation=SERIALIZABLE",
        &mode,
        "--character-set-server=latin1",
        "--collation-server=latin1_german1_ci",
        "--default-time-zone=-07:00",
        "--autocommit=0",
    ];
    let args = args.map(str::to_owned).to_vec();
    let server = MariaDbServer::start(MariaDbOptions { args, ..MariaDbOptions::default() }).await?;
    let server = Place::with_mariadb(server).await?;
    for kind in ["TIMESTAMP(3)", "DATETIME(3)"] {
        let changed = format!(
            "ALTER TABLE shedlock MODIFY lock_until {kind} NOT NULL, MODIFY locked_at {kind} NOT NULL"
        );
        server.sql(&changed).await?;
        let one = server.ours().await?;
        let mut theirs = server.theirs("a-java-service").await?;
        theirs.raw("SET autocommit = 1").await?;
        let guard = one.mutex("orders")?.acquire().await?;
        ensure!(server.is_held().await? && !theirs.lock("orders", MINUTE).await?, "both hold, by {kind}");
        guard.release().await?;
        ensure!(theirs.lock("orders", MINUTE).await?, "what was released is not free, by {kind}");
        ensure!(one.mutex("orders")?.try_acquire().await?.is_none(), "both hold, by {kind}");
        theirs.unlock("orders", std::time::Duration::ZERO).await?;
        soon("our turn", one.mutex("orders")?.acquire()).await??.release().await?;
        let error =
            one.mutex("stra\u{df}e \u{1f6b2}")?.acquire().await.err().context("latin1 has no such letter")?;
        ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("utf8mb4"), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_shared_is_refused_with_what_to_do() -> Result<()> {
    let server = mariadb().await?;
    let url = format!("{}?shedlock&{PATIENT}", server.url());
    let error = refusal(&url).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("CREATE TABLE"), "{error:?}");
    for (made, word) in [
        (TABLE.replace("TIMESTAMP(3)", "TIMESTAMP"), "TIMESTAMP(3)"),
        (TABLE.replace(", PRIMARY KEY (name)", ""), "no key"),
        (TABLE.replace("KEY (name)", "KEY (name, locked_by)"), "no key"),
        (TABLE.replace("KEY (name)", "KEY (name(5))"), "no key"),
        (TABLE.replace("locked_by", "owner"), "locked_by"),
        (TABLE.replace("VARCHAR(255)", "VARCHAR(60)"), "locked_by"),
        (TABLE.replace("VARCHAR(64)", "CHAR(64)"), "name"),
        (format!("{TABLE} ENGINE = MyISAM"), "InnoDB"),
    ] {
        server.sql(&made).await?;
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains(word), "{made}: {error:?}");
        server.sql("DROP TABLE shedlock").await?;
    }
    server
        .sql(&format!(
            "{TABLE} CHARACTER SET utf8mb4; CREATE DATABASE jobs; CREATE USER app IDENTIFIED BY '{SECRET}'"
        ))
        .await?;
    let error = refusal(&format!("{url}&namespace=shop")).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("namespace"), "{error:?}");
    let one = client(&url).await?;
    server.sql("GRANT EXECUTE ON palisade.* TO app").await?;
    let app = url.replace("//root@", &format!("//app:{SECRET}@"));
    let error = refusal(&app).await?;
    ensure!(error.kind() == ErrorKind::Denied && error.to_string().contains("GRANT SELECT"), "{error:?}");
    server.sql("GRANT SELECT, INSERT, UPDATE ON palisade.shedlock TO app").await?;
    client(&app).await?.mutex("orders")?.acquire().await?.release().await?;
    let error = one.mutex(&"x".repeat(65))?.acquire().await.err().context("it was granted")?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("64"), "{error:?}");
    one.mutex(&"ü".repeat(64))?.acquire().await?.release().await?;
    ensure!(one.rw_lock("orders").is_err() && one.semaphore("orders", 2).is_err(), "others than exclusive");
    server.sql(&TABLE.replace("shedlock", "jobs.`Lo``cks`")).await?;
    let elsewhere = client(&format!("{}?shedlock=jobs.Lo`cks&{PATIENT}", server.url())).await?;
    let guard = elsewhere.mutex("orders")?.acquire().await?;
    ensure!(server.sql("SELECT COUNT(*) FROM jobs.`Lo``cks`").await?.trim() == "1", "its table is empty");
    guard.release().await?;
    Ok(())
}
