//! The floor of MySQL's and MariaDB's session locks: `GET_LOCK` and `RELEASE_LOCK`, prepared, over the library that the
//! engine itself has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::Mutex;

use super::mysql::connect;
use super::{Floors, RawClient, RawLimit, without_options};

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let known = &["namespace", "ttl", "call-timeout", "mode", "connections"];
    let url = without_options(url, "MySQL", known)?;
    let run = uuid::Uuid::new_v4().simple().to_string()[..16].to_owned();
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
    /// Sets the names of this run apart.
    run: String,
    /// Keeps the line waiting until it is started; in the process that began.
    starter: Option<Mutex<Option<Arc<Starter>>>>,
}

#[derive(Debug)]
struct Starter(Mutex<Conn>);

#[async_trait]
impl RawLimit for Advisory {
    fn floors(&self) -> Floors {
        Floors {
            pair: "GET_LOCK, RELEASE_LOCK",
            turn: "GET_LOCK, for which all wait, and RELEASE_LOCK",
            hold: "GET_LOCK, and the holder's connection ends",
            keep: "one statement that shows that the client lives",
        }
    }

    fn address(&self) -> String {
        format!("{}\n{}", self.run, self.url)
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        let starter = match &self.starter {
            None => None,
            Some(starter) => Some(self.started(&mut *starter.lock().await).await?),
        };
        Ok(Arc::new(Bare {
            conn: Mutex::new(connect(&self.url).await?),
            eye: Mutex::new(connect(&self.url).await?),
            run: self.run.clone(),
            starter,
            waits: AtomicBool::new(false),
        }))
    }
}

impl Advisory {
    /// The one there is, unless it ended with the shape before.
    async fn started(&self, starter: &mut Option<Arc<Starter>>) -> Result<Arc<Starter>> {
        if let Some(starter) = starter {
            let lives = starter.0.lock().await.ping().await.is_ok();
            if lives {
                return Ok(Arc::clone(starter));
            }
        }
        let new = Arc::new(Starter(Mutex::new(connect(&self.url).await?)));
        take(&new.0, &self.run, TURN).await?;
        *starter = Some(Arc::clone(&new));
        Ok(new)
    }
}

const TURN: &str = "turn";
const HOLD: &str = "hold";

/// Waits for a lock for as long as may be.
async fn take(conn: &Mutex<Conn>, run: &str, name: &str) -> Result<()> {
    let name = format!("{run}.{name}");
    let got: Option<i64> =
        conn.lock().await.exec_first("SELECT GET_LOCK(?, 31536000)", (&name,)).await?.flatten();
    ensure!(got == Some(1), "{name} was not obtained");
    Ok(())
}

async fn give(conn: &Mutex<Conn>, run: &str, name: &str) -> Result<()> {
    let name = format!("{run}.{name}");
    let gave: Option<i64> = conn.lock().await.exec_first("SELECT RELEASE_LOCK(?)", (&name,)).await?.flatten();
    ensure!(gave == Some(1), "{name} was lost");
    Ok(())
}

struct Bare {
    conn: Mutex<Conn>,
    /// Sees who waits.
    eye: Mutex<Conn>,
    run: String,
    starter: Option<Arc<Starter>>,
    waits: AtomicBool,
}

impl Bare {
    fn starter(&self) -> Result<&Starter> {
        self.starter.as_deref().context("another process began")
    }
}

#[async_trait]
impl RawClient for Bare {
    async fn pair(&self, key: &str) -> Result<()> {
        take(&self.conn, &self.run, key).await?;
        give(&self.conn, &self.run, key).await
    }

    async fn join(&self, _place: usize, _of: usize) -> Result<()> {
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        give(&self.starter()?.0, &self.run, TURN).await
    }

    async fn turn(&self) -> Result<()> {
        take(&self.conn, &self.run, TURN).await
    }

    async fn pass(&self) -> Result<()> {
        give(&self.conn, &self.run, TURN).await
    }

    async fn end(&self) -> Result<()> {
        take(&self.starter()?.0, &self.run, TURN).await
    }

    async fn hold(&self) -> Result<()> {
        self.waits.store(true, Ordering::Relaxed);
        take(&self.conn, &self.run, HOLD).await?;
        self.waits.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn until_waiting(&self) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(2);
        const WAITING: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'";
        loop {
            let waiting: Option<i64> = self.eye.lock().await.query_first(WAITING).await?;
            if self.waits.load(Ordering::Relaxed) && waiting > Some(0) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn let_go(&self) -> Result<()> {
        give(&self.conn, &self.run, HOLD).await
    }

    async fn fill(&self, count: usize) -> Result<()> {
        for number in 0..count {
            take(&self.conn, &self.run, &format!("fill/{number}")).await?;
        }
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        Ok(self.conn.lock().await.exec_drop("SELECT CONNECTION_ID()", ()).await?)
    }
}

#[cfg(test)]
mod tests {
    use palisade_testkit::servers::{MariaDbOptions, MariaDbServer};

    use super::*;

    #[tokio::test]
    async fn a_line_waits_until_it_is_started_and_a_lock_ends_with_its_connection() {
        let server = MariaDbServer::start(MariaDbOptions::default()).await.unwrap();
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
