//! Lets ShedLock and Palisade contend for one lock of one server, PostgreSQL's and then MariaDB's, each in processes of their
//! own or tasks. Started by `cargo xtask interop`, which prepares ShedLock: the command that starts it is the argument.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::ClientBuilder;
use palisade_sql_trials::{mariadb, postgres};
use palisade_testkit::turns::{begin, count, counted, run};
use tokio::process::Command;
use tokio::task::JoinSet;

const NAME: &str = "orders";
const TURNS: u32 = 150;
const LIMIT: Duration = Duration::from_mins(3);

/// As ShedLock's documentation has it.
const POSTGRES_TABLE: &str = "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
                     locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

/// The same for MySQL.
const MARIADB_TABLE: &str = "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
                     locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

#[tokio::main]
async fn main() -> Result<()> {
    let shedlock = std::env::args().nth(1).context("name the command that starts ShedLock")?;
    let turns = tokio::time::timeout(LIMIT, on_postgres(&shedlock)).await.context("it took too long")??;
    println!("PostgreSQL: {turns} turns of ShedLock's JdbcTemplateLockProvider and Palisade, one at a time");
    let turns = tokio::time::timeout(LIMIT, on_mariadb(&shedlock)).await.context("it took too long")??;
    println!("MariaDB: {turns} turns of ShedLock's JdbcTemplateLockProvider and Palisade, one at a time");
    Ok(())
}

async fn on_postgres(shedlock: &str) -> Result<u32> {
    let server = postgres().await?;
    server.psql(POSTGRES_TABLE).await?;
    let jdbc = format!("jdbc:postgresql://{}/postgres", server.address());
    let turns = contend(shedlock, &jdbc, "postgres", &server.url()).await?;
    let left = server
        .psql("SELECT (SELECT count(*) FROM palisade.claim), count(*) FROM shedlock WHERE lock_until > timezone('utc', now())")
        .await?;
    ensure!(left.trim() == "0|0", "claims and rows were left: {left}");
    Ok(turns)
}

async fn on_mariadb(shedlock: &str) -> Result<u32> {
    let server = mariadb().await?;
    server.sql(MARIADB_TABLE).await?;
    let jdbc = format!("jdbc:mariadb://{}/palisade", server.address());
    let turns = contend(shedlock, &jdbc, "root", &server.url()).await?;
    let left = server
        .sql("SELECT (SELECT COUNT(*) FROM palisade_claim), COUNT(*) FROM shedlock WHERE lock_until > UTC_TIMESTAMP(3)")
        .await?;
    ensure!(left.split_whitespace().eq(["0", "0"]), "claims and rows were left: {left}");
    Ok(turns)
}

/// Returns how many turns all took together.
async fn contend(shedlock: &str, jdbc: &str, user: &str, url: &str) -> Result<u32> {
    let folder = tempfile::tempdir()?;
    let path: &Path = folder.path();
    begin(path)?;
    let mut all = JoinSet::new();
    for _ in 0..2 {
        let mut words = shedlock.split(' ');
        let mut command = Command::new(words.next().context("a command is a program")?);
        command.args(words).args([jdbc, user, NAME, &TURNS.to_string()]).arg(path);
        all.spawn(run(command, 1));
        all.spawn(ours(format!("{url}?shedlock"), path.to_owned()));
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    let (count, expected) = (counted(path)?, 4 * TURNS);
    ensure!(count == expected, "{count} of {expected} turns were counted: two were inside at once");
    Ok(count)
}

async fn ours(url: String, folder: PathBuf) -> Result<()> {
    let client = ClientBuilder::default().connect(&url).await?;
    let lock = client.mutex(NAME)?;
    // The others take their time to start, and would find nobody to contend with.
    while counted(&folder).is_ok_and(|turns| turns == 0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..TURNS {
        let guard = lock.acquire().await?;
        count(&folder)?;
        guard.release().await?;
    }
    client.close().await;
    Ok(())
}
