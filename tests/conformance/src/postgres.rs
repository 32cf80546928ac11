//! Fixtures over a real PostgreSQL, directly and through a pooler.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use palisade_core::{Engine, Error, ErrorKind};
use palisade_testkit::Fixture;
use palisade_testkit::servers::{PgBouncer, PostgresOptions, PostgresServer};
use tokio::sync::Mutex;

/// One server.
#[derive(Debug)]
pub struct Postgres {
    name: &'static str,
    short_ttl_ms: u64,
    /// Without a namespace.
    url: String,
    /// What stands before the server, if anything does.
    _pooler: Option<PgBouncer>,
    server: PostgresServer,
}

impl Postgres {
    /// A server that is reached directly.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn direct() -> Result<Self> {
        let server = start().await?;
        Ok(Self {
            name: "postgres",
            short_ttl_ms: 800,
            url: format!("{}?", server.url()),
            _pooler: None,
            server,
        })
    }

    /// A server whose own session locks decide.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn advisory() -> Result<Self> {
        let server = start().await?;
        let url = format!("{}?mode=advisory&", server.url());
        // Who waits for the first time makes a connection first.
        Ok(Self { name: "postgres, session locks", short_ttl_ms: 1500, url, _pooler: None, server })
    }

    /// A server behind a pooler of transactions, which tells of turns past it if `told`.
    ///
    /// # Errors
    /// One of them does not come up.
    pub async fn pooled(told: bool) -> Result<Self> {
        // Of another version than the one that is reached directly.
        let newer = PostgresOptions { fsync: true, ..PostgresOptions::newer()? };
        let server = if told { PostgresServer::start(newer).await? } else { start().await? };
        let pooler = PgBouncer::start(&server).await?;
        let (name, listen) = if told {
            ("postgres behind a pooler", format!("listen={}&", server.address()))
        } else {
            ("postgres behind a pooler, polled", String::new())
        };
        Ok(Self {
            name,
            short_ttl_ms: 800,
            url: format!("{}?{listen}", pooler.url()),
            _pooler: Some(pooler),
            server,
        })
    }
}

/// One server with tables of ShedLock's, which every holder has a row in.
///
/// ShedLock knows no namespaces: for each of the suite's there is a schema and a table.
#[derive(Debug)]
pub struct Shedlock {
    postgres: Postgres,
    made: Mutex<HashSet<String>>,
}

impl Shedlock {
    /// A server that is reached directly.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start() -> Result<Self> {
        // Of so many schemas there are thousands of files, each of which a server that crashed would sync by itself.
        let settings = vec!["recovery_init_sync_method=syncfs".to_owned()];
        let options = PostgresOptions { fsync: true, settings, ..PostgresOptions::default() };
        let server = PostgresServer::start(options).await?;
        let postgres = Postgres {
            name: "postgres with ShedLock's rows",
            // Two statements to take, and two to give back.
            short_ttl_ms: 1500,
            url: format!("{}?", server.url()),
            _pooler: None,
            server,
        };
        Ok(Self { postgres, made: Mutex::default() })
    }

    fn at(&self, place: &str) -> String {
        format!("{}schema={place}&shedlock={place}", self.postgres.url)
    }

    /// Makes the table of a namespace, with room for names of any length.
    async fn make(&self, place: &str) -> Result<()> {
        let mut made = self.made.lock().await;
        if !made.contains(place) {
            let table = format!(
                "CREATE TABLE {place} (name TEXT PRIMARY KEY, lock_until TIMESTAMP NOT NULL, \
                 locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)"
            );
            self.postgres.server.psql(&table).await?;
            made.insert(place.to_owned());
        }
        Ok(())
    }
}

#[async_trait]
impl Fixture for Shedlock {
    fn name(&self) -> &str {
        self.postgres.name()
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

    fn short_ttl(&self) -> Duration {
        self.postgres.short_ttl()
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }

    async fn restart(&self) -> palisade_core::Result<()> {
        self.postgres.restart().await
    }
}

/// Where a namespace of the suite's is on a server with ShedLock's tables: a short name of its own.
pub(crate) fn place(namespace: &str) -> String {
    let mut hasher = DefaultHasher::new();
    namespace.hash(&mut hasher);
    format!("suite_{:016x}", hasher.finish())
}

async fn start() -> Result<PostgresServer> {
    PostgresServer::start(PostgresOptions { fsync: true, ..PostgresOptions::default() }).await
}

#[async_trait]
impl Fixture for Postgres {
    fn name(&self) -> &str {
        self.name
    }

    async fn connect(&self, namespace: &str) -> palisade_core::Result<Arc<dyn Engine>> {
        let url = format!("{}namespace={namespace}", self.url);
        Ok(Arc::clone(palisade::connect(&url).await?.engine()))
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(format!("{}namespace={namespace}", self.url))
    }

    /// Longer than a statement takes while eight cases and their workloads run on two processors.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(self.short_ttl_ms)
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
