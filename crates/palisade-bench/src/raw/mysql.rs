//! The floor of MySQL and MariaDB: bare statements, prepared, over the library that the engine itself has.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use super::{Floors, RawClient, RawLimit, without_options};

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let url = without_options(url, "MySQL", &["namespace", "ttl", "call-timeout", "poll"])?;
    let table = format!("palisade_bench_{}", uuid::Uuid::new_v4().simple());
    Ok(Arc::new(MySql { url: url.to_owned(), table, made: OnceCell::const_new() }))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    let (table, url) = address.split_once('\n').context("an address begins with a table")?;
    let made = OnceCell::new_with(Some(()));
    Ok(Arc::new(MySql { url: url.to_owned(), table: table.to_owned(), made }))
}

/// What the death of a holder leaves behind stands for so long: short, because a run waits for it.
const LEASE: Duration = Duration::from_secs(2);

/// How many connections a client has: as many as one of Palisade's has at most.
const CONNECTIONS: usize = 4;

/// How many rows one statement renews: as many as the engine has in one.
const BATCH: usize = 500;

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// Bare statements at one server.
#[derive(Debug)]
struct MySql {
    /// Without options.
    url: String,
    table: String,
    made: OnceCell<()>,
}

#[async_trait]
impl RawLimit for MySql {
    fn floors(&self) -> Floors {
        Floors {
            pair: "a row inserted, and the row deleted, each a commit",
            turn: "GET_LOCK, which blocks, and RELEASE_LOCK",
            hold: "a row, taken over when its time is up",
            keep: "one UPDATE of 500 rows",
        }
    }

    fn address(&self) -> String {
        format!("{}\n{}", self.table, self.url)
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        let mut conn = connect(&self.url).await?;
        self.made.get_or_try_init(|| make(&mut conn, &self.table)).await?;
        let table = &self.table;
        Ok(Arc::new(Bare {
            url: self.url.clone(),
            lines: [
                OnceCell::new_with(Some(Mutex::new(conn))),
                OnceCell::new(),
                OnceCell::new(),
                OnceCell::new(),
            ],
            blocks: OnceCell::new(),
            insert: format!("INSERT INTO {table} VALUES (?, ?, {NOW} + 15000000)"),
            delete: format!("DELETE FROM {table} WHERE name = ? AND owner = ?"),
            take: format!(
                "INSERT INTO {table} VALUES (?, ?, {NOW} + 2000000) ON DUPLICATE KEY UPDATE \
                 owner = IF(expires <= {NOW}, ?, owner), expires = IF(owner = ?, {NOW} + 2000000, expires)"
            ),
            left: format!(
                "SELECT CAST(GREATEST(0, expires - {NOW}) AS SIGNED) FROM {table} WHERE name = 'hold'"
            ),
            table: table.clone(),
            own: uuid::Uuid::new_v4().simple().to_string(),
            waits: AtomicBool::new(false),
            kept: AtomicUsize::new(0),
        }))
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }
}

pub(super) async fn connect(url: &str) -> Result<Conn> {
    let opts = OptsBuilder::from_opts(Opts::from_url(&url.replacen("mariadb://", "mysql://", 1))?);
    Ok(Conn::new(opts.prefer_socket(false).tcp_nodelay(true)).await?)
}

async fn make(conn: &mut Conn, table: &str) -> Result<()> {
    let sql = format!(
        "CREATE TABLE {table} (name VARBINARY(200) PRIMARY KEY, owner VARBINARY(64) NOT NULL, expires BIGINT NOT NULL) ENGINE = InnoDB"
    );
    Ok(conn.query_drop(sql).await?)
}

struct Bare {
    url: String,
    /// Made when they are needed: a server has few.
    lines: [OnceCell<Mutex<Conn>>; CONNECTIONS],
    /// Where a turn is waited for: nothing else could be done there meanwhile.
    blocks: OnceCell<Mutex<Conn>>,
    insert: String,
    delete: String,
    take: String,
    left: String,
    table: String,
    own: String,
    waits: AtomicBool,
    kept: AtomicUsize,
}

impl Bare {
    async fn connected<'a>(&self, line: &'a OnceCell<Mutex<Conn>>) -> Result<&'a Mutex<Conn>> {
        line.get_or_try_init(|| async { Ok(Mutex::new(connect(&self.url).await?)) }).await
    }

    /// A connection that has nothing to do, else the first that has done it.
    async fn line(&self) -> Result<MutexGuard<'_, Conn>> {
        for line in &self.lines {
            if let Ok(line) = self.connected(line).await?.try_lock() {
                return Ok(line);
            }
        }
        let busy = self.lines.iter().filter_map(OnceCell::get).map(|line| Box::pin(line.lock()));
        Ok(futures::future::select_all(busy).await.0)
    }

    async fn run(&self, sql: &str, bound: impl Into<Params> + Send) -> Result<u64> {
        let mut line = self.line().await?;
        line.exec_drop(sql, bound).await?;
        Ok(line.affected_rows())
    }

    async fn block(&self, sql: &str) -> Result<()> {
        let mut line = self.connected(&self.blocks).await?.lock().await;
        let done: Option<i64> = line.exec_first(sql, (&self.table,)).await?.flatten();
        ensure!(done == Some(1), "{sql} gave {done:?}");
        Ok(())
    }
}

#[async_trait]
impl RawClient for Bare {
    async fn pair(&self, key: &str) -> Result<()> {
        ensure!(self.run(&self.insert, (key, &self.own)).await? == 1, "somebody else has {key}");
        ensure!(self.run(&self.delete, (key, &self.own)).await? == 1, "{key} was lost");
        Ok(())
    }

    async fn join(&self, _place: usize, _of: usize) -> Result<()> {
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        Ok(())
    }

    async fn turn(&self) -> Result<()> {
        // As long as a run may take: those who come late wait for all before them.
        self.block("SELECT GET_LOCK(?, 600)").await
    }

    async fn pass(&self) -> Result<()> {
        self.block("SELECT RELEASE_LOCK(?)").await
    }

    async fn hold(&self) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(1);
        while self.run(&self.take, ("hold", &self.own, &self.own, &self.own)).await? == 0 {
            self.waits.store(true, Ordering::Relaxed);
            let left: Option<u64> = self.line().await?.query_first(&self.left).await?;
            tokio::time::sleep(Duration::from_micros(left.unwrap_or(0)) + LOOK).await;
        }
        self.waits.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn until_waiting(&self) -> Result<()> {
        while !self.waits.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn let_go(&self) -> Result<()> {
        self.run(&self.delete, ("hold", &self.own)).await.map(drop)
    }

    async fn fill(&self, count: usize) -> Result<()> {
        for number in 0..count {
            self.run(&self.insert, (format!("{}/{number}", self.own), &self.own)).await?;
        }
        self.kept.store(count, Ordering::Relaxed);
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        let count = self.kept.load(Ordering::Relaxed);
        for first in (0..count).step_by(BATCH) {
            let mut names = String::new();
            for number in first..count.min(first + BATCH) {
                let comma = if names.is_empty() { "" } else { ", " };
                write!(names, "{comma}'{}/{number}'", self.own)?;
            }
            let sql = format!("UPDATE {} SET expires = {NOW} + 15000000 WHERE name IN ({names})", self.table);
            self.line().await?.query_drop(sql).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use palisade_testkit::servers::{MariaDbOptions, MariaDbServer};

    use super::*;

    #[tokio::test]
    async fn turns_are_taken_and_a_lock_is_taken_over_when_its_time_is_up() {
        let server = MariaDbServer::start(MariaDbOptions::default()).await.unwrap();
        let raw = open(&server.url()).unwrap();
        let one = raw.client().await.unwrap();
        let other = attach(&raw.address()).unwrap().client().await.unwrap();
        one.pair("bench").await.unwrap();
        one.fill(3).await.unwrap();
        one.keep().await.unwrap();
        for member in [&one, &other, &one, &other] {
            member.turn().await.unwrap();
            member.pass().await.unwrap();
        }
        other.hold().await.unwrap();
        let (held, ()) = tokio::join!(one.hold(), async { one.until_waiting().await.unwrap() });
        held.unwrap();
        one.let_go().await.unwrap();
    }
}
