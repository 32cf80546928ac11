//! What only a real MariaDB can show: its schema, its rights, its names, its crowds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::{ClientBuilder, Condition, ErrorKind};
use palisade_core::Wakeup;
use palisade_sql_trials::{SECRET, client, mariadb, refusal, until};
use palisade_testkit::servers::MariaDbServer;
use tokio::process::Command;

use crate::alike::sixteen_come_at_once;

fn url(server: &MariaDbServer, login: &str) -> String {
    format!("mysql://{login}@{}/palisade", server.address())
}

#[tokio::test]
async fn sixteen_processes_make_one_schema() -> Result<()> {
    let server = mariadb().await?;
    sixteen_come_at_once(&server.url()).await?;
    let made = server.sql("SELECT COUNT(*) FROM palisade_meta; SELECT COUNT(*) FROM palisade_lane").await?;
    ensure!(made.split_whitespace().eq(["1", "1024"]), "it was made as {made}");
    Ok(())
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_both_versions() -> Result<()> {
    let server = mariadb().await?;
    client(&server.url()).await?;
    server.sql("UPDATE palisade_meta SET version = 77").await?;
    let error = refusal(&server.url()).await?;
    ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
    ensure!(error.to_string().contains("77") && error.to_string().contains("knows version"), "{error}");
    Ok(())
}

/// What a server does to its schema is not undone: whoever died half-way is continued.
#[tokio::test]
async fn a_schema_that_is_half_made_is_finished() -> Result<()> {
    let server = mariadb().await?;
    let one = ClientBuilder::default().ttl(Duration::from_secs(20)).connect(&server.url()).await?;
    let before = one.mutex("orders")?.acquire().await?;
    server.sql("DROP PROCEDURE palisade_hello; DROP PROCEDURE palisade_store; DELETE FROM palisade_lane WHERE lane > 7").await?;
    let two = client(&server.url()).await?;
    ensure!(two.mutex("orders")?.try_acquire().await?.is_none(), "what was held is lost");
    ensure!(two.engine().source() == one.engine().source(), "the source is another one");
    let token = before.token();
    before.release().await?;
    ensure!(two.mutex("orders")?.acquire().await?.token() > token, "the token fell");
    two.register("note")?.write("x", Condition::always()).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_printed_is_what_is_needed_and_a_user_who_may_only_execute_can_do_everything() -> Result<()> {
    let server = mariadb().await?;
    server
        .sql(&format!("CREATE USER app IDENTIFIED BY '{SECRET}'; CREATE USER other IDENTIFIED BY 'x'"))
        .await?;
    let login = format!("app:{SECRET}");
    let error = refusal(&url(&server, &login)).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    server.sql(&palisade::mysql_schema()).await?;
    // It is there, and this user may see the database, but not run what is in it.
    server.sql("GRANT SELECT ON palisade.palisade_meta TO app").await?;
    let error = refusal(&url(&server, &login)).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    ensure!(error.to_string().contains("GRANT EXECUTE"), "{error}");
    server
        .sql("REVOKE SELECT ON palisade.palisade_meta FROM app; GRANT EXECUTE ON palisade.* TO app")
        .await?;
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
        ["SELECT * FROM palisade_claim", "DELETE FROM palisade_grave", "UPDATE palisade_lane SET n = 1"]
    {
        let mut tried = Command::new("mariadb");
        tried.args([
            "--no-defaults",
            "--protocol=tcp",
            "--host=127.0.0.1",
            "--user=app",
            "--database=palisade",
        ]);
        tried.arg(format!("--port={}", server.address().port())).args(["--execute", statement]);
        let said = tried.env("MYSQL_PWD", SECRET).output().await?;
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        ensure!(said.contains("denied"), "{statement} was done: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_password_is_asked_for_and_never_shown() -> Result<()> {
    let server = mariadb().await?;
    server.sql(&format!("CREATE USER app IDENTIFIED BY '{SECRET}'; GRANT ALL ON palisade.* TO app")).await?;
    let good = client(&url(&server, &format!("app:{SECRET}"))).await?;
    ensure!(!format!("{good:?} {:?}", good.engine()).contains(SECRET), "Debug shows it");
    for login in [format!("app:{SECRET}x"), format!("nobody:{SECRET}"), "app".to_owned()] {
        let error = refusal(&url(&server, &login)).await?;
        ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
        ensure!(error.to_string().contains("password"), "{error}");
    }
    let error = refusal(&format!("mysql://root:{SECRET}@{}/palisade", server.address())).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    let error = refusal(&format!("mysql://root@{}/nothing", server.address())).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("nothing"), "{error:?}");
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let error = refusal(&format!("mysql://root:{SECRET}@{free}/palisade")).await?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    Ok(())
}

const HOSTILE: &[&str] = &[
    "'; DROP TABLE palisade_claim; --",
    "\"quoted\" `ticks` @@version ? :a",
    "back\\slash %s %_ {schema} NULL \\0 \\Z",
    "ORDERS",
    "orders",
    "orders ",
    "ordérs",
    "orde\u{301}rs",
    "ß",
    "ss",
    " leading and trailing ",
    "🚲 \u{202e}right to left",
    "../../etc/passwd",
];

#[tokio::test]
async fn names_are_bytes_and_nothing_else() -> Result<()> {
    let server = mariadb().await?;
    let (one, two) = (client(&server.url()).await?, client(&server.url()).await?);
    let longest = ["x", "y"].map(|last| format!("{}{last}", "x".repeat(palisade::Name::MAX_BYTES - 1)));
    let names: Vec<&str> = HOSTILE.iter().copied().chain(longest.iter().map(String::as_str)).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(one.mutex(name)?.acquire().await?);
        one.register(name)?.write((*name).to_owned(), Condition::always()).await?;
    }
    for name in &names {
        ensure!(two.mutex(name)?.try_acquire().await?.is_none(), "{name:?} is held by two");
        let read = two.register(name)?.read().await?;
        ensure!(read.value.as_deref() == Some(name.as_bytes()), "{name:?} holds {read:?}");
    }
    let namespace = "n'a\"m%20e";
    let other = client(&format!("{}?namespace={}", server.url(), namespace.replace('%', "%25"))).await?;
    ensure!(other.mutex(names[0])?.try_acquire().await?.is_some(), "namespaces share a lock");
    Ok(())
}

#[tokio::test]
async fn two_hundred_wait_and_each_gets_its_turn() -> Result<()> {
    const WAITERS: usize = 200;
    let server = mariadb().await?;
    let client = Arc::new(ClientBuilder::default().ttl(Duration::from_mins(1)).connect(&server.url()).await?);
    ensure!(client.engine().profile().wakeup != Wakeup::Push, "it says that it is told");
    let guard = client.mutex("orders")?.acquire().await?;
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let guard = client.mutex("orders")?.acquire().await?;
                let token = guard.token();
                guard.release().await?;
                anyhow::Ok(token)
            })
        })
        .collect();
    until("all wait", || async { Ok(client.show("orders").await?.waiters.len() == WAITERS) }).await?;
    guard.release().await?;
    let mut tokens = BTreeSet::new();
    for task in tasks {
        tokens.insert(tokio::time::timeout(Duration::from_mins(2), task).await???);
    }
    ensure!(tokens.len() == WAITERS, "two have one token");
    let left = server.sql("SELECT COUNT(*) FROM palisade_claim").await?;
    ensure!(left.trim() == "0", "{left} claims are left");
    Ok(())
}

/// However many wait, one statement per client and interval asks for all of them.
#[tokio::test]
async fn who_waits_costs_one_statement_per_interval() -> Result<()> {
    const WAITERS: usize = 50;
    let server = mariadb().await?;
    let holder = client(&server.url()).await?;
    let _held = holder.mutex("orders")?.acquire().await?;
    let url = format!("{}?poll=200ms", server.url());
    let waiter = Arc::new(ClientBuilder::default().ttl(Duration::from_mins(1)).connect(&url).await?);
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let waiter = Arc::clone(&waiter);
            tokio::spawn(async move { waiter.mutex("orders")?.acquire().await.map(drop) })
        })
        .collect();
    until("all wait", || async { Ok(holder.show("orders").await?.waiters.len() == WAITERS) }).await?;
    let calls = async || -> Result<u64> {
        let said = server.sql("SHOW GLOBAL STATUS LIKE 'Com_call_procedure'").await?;
        Ok(said.split_whitespace().nth(1).context("a number")?.parse()?)
    };
    let before = calls().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = calls().await? - before;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    // Ten polls, and what the holder renews.
    ensure!(asked <= 20, "{asked} statements in two seconds");
    Ok(())
}
