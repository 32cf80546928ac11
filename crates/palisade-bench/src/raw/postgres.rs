//! The floor of PostgreSQL: bare statements, prepared, over the library that the engine itself has.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use tokio::sync::{Mutex, OnceCell, mpsc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::{Floors, RawClient, RawLimit, without_options};

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let url = without_options(url, "PostgreSQL", &["namespace", "ttl", "call-timeout", "schema"])?;
    let table = format!("palisade_bench_{}", uuid::Uuid::new_v4().simple());
    Ok(Arc::new(Postgres { url: url.to_owned(), table, made: OnceCell::const_new() }))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    let (table, url) = address.split_once('\n').context("an address begins with a table")?;
    let made = OnceCell::new_with(Some(()));
    Ok(Arc::new(Postgres { url: url.to_owned(), table: table.to_owned(), made }))
}

/// What the death of a holder leaves behind stands for so long: short, because a run waits for it.
const LEASE: Duration = Duration::from_secs(2);

/// How many connections a client has: as many as one of Palisade's has at most.
const CONNECTIONS: usize = 4;

/// How many rows one statement renews; the engine has one row for far more.
const BATCH: usize = 500;

/// Bare statements at one server.
#[derive(Debug)]
struct Postgres {
    /// Without options.
    url: String,
    table: String,
    made: OnceCell<()>,
}

#[async_trait]
impl RawLimit for Postgres {
    fn floors(&self) -> Floors {
        Floors {
            pair: "a row inserted, and the row deleted, each a commit",
            turn: "a token: NOTIFY by one process, LISTEN of the next",
            hold: "a row, taken over when its time is up",
            keep: "one UPDATE of 500 rows",
        }
    }

    fn address(&self) -> String {
        format!("{}\n{}", self.table, self.url)
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        let (told, hears) = mpsc::unbounded_channel();
        let mut lines = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = connect(&self.url, told.clone()).await?;
            if lines.is_empty() {
                self.made.get_or_try_init(|| make(&client, &self.table)).await?;
            }
            lines.push(Line::prepare(client, &self.table).await?);
        }
        Ok(Arc::new(Bare {
            lines,
            table: self.table.clone(),
            own: uuid::Uuid::new_v4().simple().to_string(),
            next: Mutex::default(),
            hears: Mutex::new(hears),
            waits: AtomicBool::new(false),
            kept: AtomicUsize::new(0),
        }))
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }
}

async fn connect(url: &str, told: mpsc::UnboundedSender<()>) -> Result<Client> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(_) = message {
                let _ = told.send(());
            }
        }
    });
    Ok(client)
}

async fn make(client: &Client, table: &str) -> Result<()> {
    let sql = format!(
        "CREATE TABLE {table} (key text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)"
    );
    Ok(client.batch_execute(&sql).await?)
}

/// One connection with its statements.
struct Line {
    client: Client,
    calls: AtomicUsize,
    insert: Statement,
    delete: Statement,
    take: Statement,
    keep: Statement,
    notify: Statement,
}

impl Line {
    async fn prepare(client: Client, table: &str) -> Result<Self> {
        let prepare = async |sql: String| client.prepare(&sql).await;
        let insert =
            prepare(format!("INSERT INTO {table} VALUES ($1, $2, clock_timestamp() + interval '15 s')"))
                .await?;
        let delete = prepare(format!("DELETE FROM {table} WHERE key = $1 AND owner = $2")).await?;
        let take = prepare(format!(
            "INSERT INTO {table} AS lock VALUES ($1, $2, clock_timestamp() + interval '2 s') ON CONFLICT (key) \
             DO UPDATE SET owner = $2, expires = clock_timestamp() + interval '2 s' WHERE lock.expires <= clock_timestamp()"
        ))
        .await?;
        let keep = prepare(format!(
            "UPDATE {table} SET expires = clock_timestamp() + interval '15 s' WHERE key = ANY ($1)"
        ))
        .await?;
        let notify = prepare("SELECT pg_notify($1, '')".to_owned()).await?;
        Ok(Self { client, calls: AtomicUsize::new(0), insert, delete, take, keep, notify })
    }

    async fn run(
        &self,
        statement: impl Fn(&Self) -> &Statement,
        bound: &[&(dyn ToSql + Sync)],
    ) -> Result<u64> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let done = self.client.execute(statement(self), bound).await;
        self.calls.fetch_sub(1, Ordering::Relaxed);
        Ok(done?)
    }
}

struct Bare {
    lines: Vec<Line>,
    table: String,
    own: String,
    /// The channel of the next in the line.
    next: Mutex<Option<String>>,
    hears: Mutex<mpsc::UnboundedReceiver<()>>,
    waits: AtomicBool,
    kept: AtomicUsize,
}

impl Bare {
    /// The connection with the least to do.
    fn line(&self) -> &Line {
        let least = self.lines.iter().min_by_key(|line| line.calls.load(Ordering::Relaxed));
        least.unwrap_or(&self.lines[0])
    }

    fn seat(&self, place: usize) -> String {
        format!("{}_{place}", self.table)
    }

    async fn tell(&self, channel: &str) -> Result<()> {
        self.line().run(|line| &line.notify, &[&channel]).await.map(drop)
    }
}

#[async_trait]
impl RawClient for Bare {
    async fn pair(&self, key: &str) -> Result<()> {
        ensure!(
            self.line().run(|line| &line.insert, &[&key, &self.own]).await? == 1,
            "somebody else has {key}"
        );
        ensure!(self.line().run(|line| &line.delete, &[&key, &self.own]).await? == 1, "{key} was lost");
        Ok(())
    }

    async fn join(&self, place: usize, of: usize) -> Result<()> {
        // The last connection is left alone while there is little to do.
        let ear = self.lines.last().context("there are connections")?;
        ear.client.batch_execute(&format!("LISTEN {}", self.seat(place))).await?;
        *self.next.lock().await = Some(self.seat((place + 1) % of));
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        self.tell(&self.seat(0)).await
    }

    async fn turn(&self) -> Result<()> {
        self.hears.lock().await.recv().await.context("the connection was lost")
    }

    async fn pass(&self) -> Result<()> {
        let next = self.next.lock().await.clone().context("this process is in no line")?;
        self.tell(&next).await
    }

    async fn hold(&self) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(1);
        while self.line().run(|line| &line.take, &[&"hold", &self.own]).await? == 0 {
            self.waits.store(true, Ordering::Relaxed);
            let sql = format!(
                "SELECT greatest(0, extract(epoch FROM expires - clock_timestamp()))::float8 FROM {} WHERE key = 'hold'",
                self.table
            );
            let left = self.lines[0].client.query_opt(&sql, &[]).await?.map_or(0.0, |row| row.get(0));
            tokio::time::sleep(Duration::from_secs_f64(left) + LOOK).await;
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
        self.line().run(|line| &line.delete, &[&"hold", &self.own]).await.map(drop)
    }

    async fn fill(&self, count: usize) -> Result<()> {
        for number in 0..count {
            let key = format!("{}/{number}", self.own);
            self.line().run(|line| &line.insert, &[&key, &self.own]).await?;
        }
        self.kept.store(count, Ordering::Relaxed);
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        let count = self.kept.load(Ordering::Relaxed);
        for first in (0..count).step_by(BATCH) {
            let some = first..count.min(first + BATCH);
            let keys: Vec<String> = some.map(|number| format!("{}/{number}", self.own)).collect();
            self.line().run(|line| &line.keep, &[&keys]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use palisade_testkit::servers::{PostgresOptions, PostgresServer};

    use super::*;

    #[tokio::test]
    async fn a_token_goes_round_and_a_lock_is_taken_over_when_its_time_is_up() {
        let server = PostgresServer::start(PostgresOptions::default()).await.unwrap();
        let raw = open(&server.url()).unwrap();
        let one = raw.client().await.unwrap();
        let other = attach(&raw.address()).unwrap().client().await.unwrap();
        one.pair("bench").await.unwrap();
        one.fill(3).await.unwrap();
        one.keep().await.unwrap();
        one.join(0, 2).await.unwrap();
        other.join(1, 2).await.unwrap();
        one.start().await.unwrap();
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
