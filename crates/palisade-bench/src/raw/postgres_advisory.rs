//! The floor of PostgreSQL's session locks: `pg_advisory_lock` and `pg_advisory_unlock`, prepared, over the library that
//! the engine itself has.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Floors, RawClient, RawLimit, without_options};

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let url = without_options(
        url,
        "PostgreSQL",
        &["namespace", "ttl", "call-timeout", "schema", "mode", "connections"],
    )?;
    let run = uuid::Uuid::new_v4().simple().to_string();
    Ok(Arc::new(Advisory { url: url.to_owned(), run, starter: Some(Mutex::const_new(None)) }))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    let (run, url) = address.split_once('\n').context("an address begins with a name")?;
    Ok(Arc::new(Advisory { url: url.to_owned(), run: run.to_owned(), starter: None }))
}

/// Bare locks of one server.
#[derive(Debug)]
struct Advisory {
    /// Without options.
    url: String,
    /// Sets the keys of this run apart.
    run: String,
    /// Keeps the line waiting until it is started; in the process that began.
    starter: Option<Mutex<Option<Arc<Starter>>>>,
}

#[derive(Debug)]
struct Starter(Client);

#[async_trait]
impl RawLimit for Advisory {
    fn floors(&self) -> Floors {
        Floors {
            pair: "pg_advisory_lock, pg_advisory_unlock",
            turn: "pg_advisory_lock, for which all wait, and pg_advisory_unlock",
            hold: "pg_advisory_lock, and the holder's connection ends",
            keep: "one statement that shows that the client lives",
        }
    }

    fn address(&self) -> String {
        format!("{}\n{}", self.run, self.url)
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        let client = connect(&self.url).await?;
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        let beat = client.prepare("SELECT pg_backend_pid()").await?;
        let starter = match &self.starter {
            None => None,
            Some(starter) => Some(self.started(&mut *starter.lock().await).await?),
        };
        let eye = connect(&self.url).await?;
        let (run, waits) = (self.run.clone(), AtomicBool::new(false));
        Ok(Arc::new(Bare { client, lock, unlock, beat, eye, run, starter, waits }))
    }
}

impl Advisory {
    /// The one there is, unless it ended with the shape before.
    async fn started(&self, starter: &mut Option<Arc<Starter>>) -> Result<Arc<Starter>> {
        if let Some(starter) = starter.as_ref().filter(|starter| !starter.0.is_closed()) {
            return Ok(Arc::clone(starter));
        }
        let new = Arc::new(Starter(connect(&self.url).await?));
        new.stop(key(&self.run, TURN)).await?;
        *starter = Some(Arc::clone(&new));
        Ok(new)
    }
}

impl Starter {
    async fn stop(&self, key: i64) -> Result<()> {
        Ok(self.0.execute("SELECT pg_advisory_lock($1)", &[&key]).await.map(drop)?)
    }
}

const TURN: &str = "turn";
const HOLD: &str = "hold";

fn key(run: &str, name: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    (run, name).hash(&mut hasher);
    hasher.finish().cast_signed()
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

struct Bare {
    client: Client,
    lock: Statement,
    unlock: Statement,
    beat: Statement,
    /// Sees who waits.
    eye: Client,
    run: String,
    starter: Option<Arc<Starter>>,
    waits: AtomicBool,
}

impl Bare {
    async fn take(&self, name: &str) -> Result<()> {
        self.client.query_one(&self.lock, &[&key(&self.run, name)]).await?;
        Ok(())
    }

    async fn give(&self, name: &str) -> Result<()> {
        let row = self.client.query_one(&self.unlock, &[&key(&self.run, name)]).await?;
        ensure!(row.get::<_, bool>(0), "{name} was lost");
        Ok(())
    }

    fn starter(&self) -> Result<&Starter> {
        self.starter.as_deref().context("another process began")
    }
}

#[async_trait]
impl RawClient for Bare {
    async fn pair(&self, key: &str) -> Result<()> {
        self.take(key).await?;
        self.give(key).await
    }

    async fn join(&self, _place: usize, _of: usize) -> Result<()> {
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        let unlocked =
            self.starter()?.0.query_one("SELECT pg_advisory_unlock($1)", &[&key(&self.run, TURN)]).await?;
        ensure!(unlocked.get::<_, bool>(0), "the line was started before");
        Ok(())
    }

    async fn turn(&self) -> Result<()> {
        self.take(TURN).await
    }

    async fn pass(&self) -> Result<()> {
        self.give(TURN).await
    }

    async fn end(&self) -> Result<()> {
        self.starter()?.stop(key(&self.run, TURN)).await
    }

    async fn hold(&self) -> Result<()> {
        self.waits.store(true, Ordering::Relaxed);
        self.take(HOLD).await?;
        self.waits.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn until_waiting(&self) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(2);
        let wanted = key(&self.run, HOLD);
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND (classid::bigint << 32) | objid::bigint = $1";
        while !self.waits.load(Ordering::Relaxed)
            || self.eye.query_one(sql, &[&wanted]).await?.get::<_, i64>(0) == 0
        {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn let_go(&self) -> Result<()> {
        self.give(HOLD).await
    }

    async fn fill(&self, count: usize) -> Result<()> {
        for number in 0..count {
            self.take(&format!("fill/{number}")).await?;
        }
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        Ok(self.client.query_one(&self.beat, &[]).await.map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use palisade_testkit::servers::{PostgresOptions, PostgresServer};

    use super::*;

    #[tokio::test]
    async fn a_line_waits_until_it_is_started_and_a_lock_ends_with_its_connection() {
        let server = PostgresServer::start(PostgresOptions::default()).await.unwrap();
        let raw = open(&format!("{}?mode=advisory", server.url())).unwrap();
        let one = raw.client().await.unwrap();
        let other = attach(&raw.address()).unwrap().client().await.unwrap();
        one.pair("bench").await.unwrap();
        one.fill(3).await.unwrap();
        one.keep().await.unwrap();
        let mut first = Box::pin(other.turn());
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut first).await.is_err());
        one.start().await.unwrap();
        first.await.unwrap();
        other.pass().await.unwrap();
        one.end().await.unwrap();
        other.hold().await.unwrap();
        let (held, ()) = tokio::join!(one.hold(), async {
            one.until_waiting().await.unwrap();
            drop(other);
        });
        held.unwrap();
        one.let_go().await.unwrap();
    }
}
