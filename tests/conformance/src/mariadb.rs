//! Fixtures over a real MariaDB, and a real MySQL.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use palisade_core::{Engine, Error, ErrorKind};
use palisade_testkit::Fixture;
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer};
use tokio::sync::Mutex;

use crate::postgres::place;

const SESSION_LOCKS: &str = "mode=advisory&";

/// One server.
#[derive(Debug)]
pub struct MariaDb {
    name: &'static str,
    /// The options of its URL, before the namespace.
    options: &'static str,
    server: MariaDbServer,
}

impl MariaDb {
    /// Starts one.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start() -> Result<Self> {
        let options = MariaDbOptions { fsync: true, ..MariaDbOptions::default() };
        Ok(Self { name: "mariadb", options: "", server: MariaDbServer::start(options).await? })
    }

    /// Starts one whose own session locks decide.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn advisory() -> Result<Self> {
        Ok(Self { name: "mariadb, session locks", options: SESSION_LOCKS, ..Self::start().await? })
    }

    /// Starts one whose own locks wake those who wait.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn woken() -> Result<Self> {
        Ok(Self { name: "mariadb, woken", options: "wake=get_lock&", ..Self::start().await? })
    }

    /// Starts one that is MySQL.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn mysql() -> Result<Self> {
        let options = MariaDbOptions { fsync: true, ..MariaDbOptions::mysql()? };
        Ok(Self { name: "mysql", options: "", server: MariaDbServer::start(options).await? })
    }

    /// Starts one that is MySQL, whose own session locks decide. It does not wait for its disk: each take is a commit, and
    /// over one connection none is shared.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn mysql_advisory() -> Result<Self> {
        let server = MariaDbServer::start(MariaDbOptions::mysql()?).await?;
        Ok(Self { name: "mysql, session locks", options: SESSION_LOCKS, server })
    }
}

#[async_trait]
impl Fixture for MariaDb {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn connect(&self, namespace: &str) -> palisade_core::Result<Arc<dyn Engine>> {
        let url = format!("{}?{}namespace={namespace}", self.server.url(), self.options);
        Ok(Arc::clone(palisade::connect(&url).await?.engine()))
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(format!("{}?{}namespace={namespace}", self.server.url(), self.options))
    }

    /// Longer than a commit takes, on a disk that builds use too, while eight cases and their workloads run on two processors.
    fn short_ttl(&self) -> Duration {
        // Who waits for the first time makes a connection first; and it ends after whole seconds.
        Duration::from_millis(if self.options == SESSION_LOCKS { 3000 } else { 1500 })
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }

    async fn restart(&self) -> palisade_core::Result<()> {
        let crash = async {
            self.server.kill().await?;
            self.server.start_again(false).await
        };
        crash.await.map_err(|problem: anyhow::Error| {
            Error::new(ErrorKind::Unavailable, format!("a server was not restarted: {problem:#}"))
        })
    }
}

/// One server with tables of ShedLock's, which every holder has a row in.
///
/// ShedLock knows no namespaces: for each of the suite's there is a database with a table.
#[derive(Debug)]
pub struct Shedlock {
    mariadb: MariaDb,
    made: Mutex<HashSet<String>>,
}

impl Shedlock {
    /// Starts one.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start() -> Result<Self> {
        let mariadb = MariaDb { name: "mariadb with ShedLock's rows", ..MariaDb::start().await? };
        Ok(Self { mariadb, made: Mutex::default() })
    }

    fn at(&self, place: &str) -> String {
        format!("mysql://root@{}/{place}?shedlock", self.mariadb.server.address())
    }

    /// Makes the database and the table of a namespace, with room for names of any length, each of which is another.
    async fn make(&self, place: &str) -> Result<()> {
        let mut made = self.made.lock().await;
        if !made.contains(place) {
            let table = format!(
                "CREATE DATABASE {place}; \
                 CREATE TABLE {place}.shedlock (name VARCHAR(600) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, \
                 lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL)"
            );
            self.mariadb.server.sql(&table).await?;
            made.insert(place.to_owned());
        }
        Ok(())
    }
}

#[async_trait]
impl Fixture for Shedlock {
    fn name(&self) -> &str {
        self.mariadb.name()
    }

    async fn connect(&self, namespace: &str) -> palisade_core::Result<Arc<dyn Engine>> {
        let place = place(namespace);
        self.make(&place).await.map_err(|problem| {
            Error::new(ErrorKind::Unavailable, format!("a table was not made: {problem:#}"))
        })?;
        Ok(Arc::clone(palisade::connect(&self.at(&place)).await?.engine()))
    }

    /// Of a namespace that somebody has connected to.
    fn url(&self, namespace: &str) -> Option<String> {
        Some(self.at(&place(namespace)))
    }

    /// Two statements to take, and two to give back.
    fn short_ttl(&self) -> Duration {
        self.mariadb.short_ttl() * 2
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }

    async fn restart(&self) -> palisade_core::Result<()> {
        self.mariadb.restart().await
    }
}
