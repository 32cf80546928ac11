//! The raw limit of each engine: the bare native commands that a shape needs, and nothing else.
//!
//! An engine adds one file here and one row to [`TABLE`]. Whatever it measures with is the client
//! library that the engine itself uses, with the same settings, so that a ratio shows what Palisade
//! adds and not what it chose.

mod embedded;
pub(crate) mod etcd;
mod memory;
mod mysql;
mod mysql_advisory;
mod postgres;
mod postgres_advisory;
mod redis;
mod redlock;
pub(crate) mod zookeeper;

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use palisade_testkit::Misuse;

use crate::peer::Peer;

/// What an engine's own commands can do at best.
#[async_trait]
pub trait RawLimit: fmt::Debug + Send + Sync {
    /// What each floor is made of, as people read it.
    fn floors(&self) -> Floors;

    /// Where a worker process finds the same raw limit; its row in the table attaches to it.
    fn address(&self) -> String;

    /// A connection such as one Palisade client has.
    async fn client(&self) -> Result<Arc<dyn RawClient>>;

    /// How many requests the server has counted since it began, all clients together; `None` where
    /// it does not count them, and the calls of our client stand in for them.
    async fn requests(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// What a shell script would run instead of `palisade run NAME -- true`, if there is something.
    fn command(&self) -> Option<Vec<OsString>> {
        None
    }

    /// Locks of others on the same engine that can be measured here.
    fn peers(&self) -> Vec<Peer> {
        Vec::new()
    }

    /// For how long a dead holder keeps others out, where it is no connection that ends with it. Both
    /// sides are measured with this TTL: the run has to wait for it.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Whether crowds are also measured as clients of one process, as the locks of others were.
    fn measures_clients_of_one_process(&self) -> bool {
        false
    }

    /// The same engine with another setting that a single client should be measured with too.
    fn settings(&self) -> Result<Vec<Setting>> {
        Ok(Vec::new())
    }
}

/// What the floors are made of; empty where the engine has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Floors {
    /// Of [`RawClient::pair`].
    pub pair: &'static str,
    /// Of [`RawClient::turn`] and [`RawClient::pass`].
    pub turn: &'static str,
    /// Of [`RawClient::hold`].
    pub hold: &'static str,
    /// Of [`RawClient::keep`].
    pub keep: &'static str,
}

/// Another setting of an engine.
#[derive(Debug)]
pub struct Setting {
    /// The row's name in the report.
    pub name: &'static str,
    /// The engine with it.
    pub url: String,
    /// Its raw limit.
    pub raw: Arc<dyn RawLimit>,
}

/// One connection of a [`RawLimit`].
#[async_trait]
pub trait RawClient: Send + Sync {
    /// Takes `key` and gives it back; nobody else wants it.
    async fn pair(&self, key: &str) -> Result<()>;

    /// Joins a line of `of` at `place`, from 0.
    async fn join(&self, place: usize, of: usize) -> Result<()>;

    /// Lets the first of the line have its turn; called once, when all have joined.
    async fn start(&self) -> Result<()>;

    /// Waits for the turn, and does what taking needs.
    async fn turn(&self) -> Result<()>;

    /// Does what releasing needs, and passes the turn on to the next.
    async fn pass(&self) -> Result<()>;

    /// Takes out of the line what [`Self::start`] put into it, once all have had their turns.
    async fn end(&self) -> Result<()> {
        Ok(())
    }

    /// Waits for a lock that the death of its holder frees, and keeps it until [`Self::let_go`].
    async fn hold(&self) -> Result<()>;

    /// Returns once [`Self::hold`] is known to wait: what it does before that is no part of its time.
    async fn until_waiting(&self) -> Result<()>;

    /// Gives back what [`Self::hold`] took.
    async fn let_go(&self) -> Result<()>;

    /// Holds `count` keys.
    async fn fill(&self, count: usize) -> Result<()>;

    /// Renews all of them once.
    async fn keep(&self) -> Result<()>;
}

/// The URL of an engine as its server's own clients understand it. Of its options only `harmless` ones may be there: a raw limit
/// that left out others would be that of another engine.
fn without_options<'a>(url: &'a str, server: &str, harmless: &[&str]) -> Result<&'a str> {
    let (url, options) = url.split_once('?').unwrap_or((url, ""));
    let names = options.split('&').filter_map(|option| option.split('=').next());
    match names.into_iter().find(|name| !name.is_empty() && !harmless.contains(name)) {
        Some(name) => {
            Err(Misuse(format!("the raw limit of {server} cannot be had with option {name}")).into())
        }
        None => Ok(url),
    }
}

/// One engine of the table.
pub(crate) struct Entry {
    /// As `palisade engines` calls it.
    pub(crate) engine: &'static str,
    scheme: &'static str,
    /// What its URL says besides, where engines share a scheme.
    option: &'static str,
    /// A URL at which a run starts one of its own.
    start: &'static str,
    /// Prepares the raw limit beside the engine at a URL.
    pub(crate) open: fn(&str) -> Result<Arc<dyn RawLimit>>,
    /// Finds the one that another process prepared.
    pub(crate) attach: fn(&str) -> Result<Arc<dyn RawLimit>>,
}

const TABLE: &[Entry] = &[
    Entry {
        engine: "embedded",
        scheme: "file",
        option: "",
        start: "local:file",
        open: embedded::open,
        attach: embedded::attach,
    },
    Entry {
        engine: "memory",
        scheme: "memory",
        option: "",
        start: "memory:",
        open: |_| Ok(memory::open()),
        attach: |_| memory::attach(),
    },
    Entry {
        engine: "redis",
        scheme: "redis",
        option: "",
        start: "local:redis",
        open: redis::open,
        attach: redis::attach,
    },
    Entry {
        engine: "etcd",
        scheme: "etcd",
        option: "",
        start: "local:etcd*1",
        open: etcd::open,
        attach: etcd::attach,
    },
    Entry {
        engine: "zookeeper",
        scheme: "zk",
        option: "",
        start: "local:zk*1",
        open: zookeeper::open,
        attach: zookeeper::attach,
    },
    Entry {
        engine: "postgres",
        scheme: "postgres",
        option: "",
        start: "local:postgres",
        open: postgres::open,
        attach: postgres::attach,
    },
    Entry {
        engine: "mysql",
        scheme: "mysql",
        option: "",
        start: "local:mariadb",
        open: mysql::open,
        attach: mysql::attach,
    },
    Entry {
        engine: "postgres-advisory",
        scheme: "postgres",
        option: "mode=advisory",
        start: "local:postgres-advisory",
        open: postgres_advisory::open,
        attach: postgres_advisory::attach,
    },
    Entry {
        engine: "mysql-advisory",
        scheme: "mysql",
        option: "mode=advisory",
        start: "local:mariadb-advisory",
        open: mysql_advisory::open,
        attach: mysql_advisory::attach,
    },
    Entry {
        engine: "redlock",
        scheme: "redlock",
        option: "",
        start: "local:redlock*5",
        open: redlock::open,
        attach: redlock::attach,
    },
];

impl Entry {
    /// URLs of all engines that a run can start.
    pub(crate) fn startable() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|entry| entry.start)
    }

    /// The row of the engine at `url`.
    pub(crate) fn of_url(url: &str) -> Result<&'static Self> {
        let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let fits = |entry: &&Self| entry.scheme == scheme && url.contains(entry.option);
        let found = TABLE.iter().filter(fits).max_by_key(|entry| entry.option.len());
        found.ok_or_else(|| {
            let known: Vec<String> = TABLE.iter().map(|entry| format!("{}:", entry.scheme)).collect();
            let known = known.join(", ");
            Misuse(format!("there is no raw limit to measure {scheme:?} engines by; there are {known}"))
                .into()
        })
    }

    /// The row of the engine that is called `name`.
    pub(crate) fn of_engine(name: &str) -> Result<&'static Self> {
        TABLE
            .iter()
            .find(|entry| entry.engine == name)
            .with_context(|| format!("there is no engine {name:?}"))
    }
}
