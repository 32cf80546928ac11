use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Result};

use crate::address::{self, HostPort};

/// Where the servers are, and how locks are laid out on them.
///
/// ```
/// use palisade_redis::RedisConfig;
/// let config = RedisConfig::parse("redis://user:secret@10.0.0.7:6379/2").unwrap().namespace("billing");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// Where the servers are.
    pub servers: Servers,
    /// Set if connections are encrypted.
    pub tls: Option<Tls>,
    /// The database on a server that has several.
    pub db: i64,
    /// Who logs in.
    pub login: Login,
    /// Who logs in at the Sentinels, which have users of their own.
    pub sentinel_login: Login,
    /// Separates tenants of one server; the empty one is a namespace too.
    pub namespace: String,
    /// Which key is the lock of a resource.
    pub key: KeyPattern,
    /// Which client's locks ours exclude.
    pub dialect: Dialect,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a verb may take before it fails with an unknown effect.
    pub call_timeout: Duration,
    /// What the tokens of these servers are told apart by, instead of a name that is kept on them.
    /// For servers that forget everything when they restart, and fences that are kept elsewhere.
    pub source: Option<String>,
}

/// Where the servers are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Servers {
    /// One server.
    Single(HostPort),
    /// Whichever server these Sentinels call the primary of a service.
    Sentinel {
        /// The Sentinels; any of them will do.
        sentinels: Vec<HostPort>,
        /// What they call the service.
        service: String,
    },
    /// A Cluster, of which these nodes know the others.
    Cluster(Vec<HostPort>),
}

/// Whom to trust, and who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// Certificates to trust instead of the well-known ones, in PEM.
    pub ca: Option<PathBuf>,
    /// Our own certificate in PEM, where the server asks for one; with [`Tls::key`].
    pub cert: Option<PathBuf>,
    /// The key of our own certificate in PEM.
    pub key: Option<PathBuf>,
}

/// A user and a password. Never shows the latter.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Login {
    /// The ACL user; the default one if there is none.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl Login {
    /// A user and a password.
    pub fn new(user: Option<String>, password: Option<String>) -> Self {
        Self { user, password }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "…");
        f.debug_struct("Login").field("user", &self.user).field("password", &password).finish()
    }
}

/// Which client's locks ours exclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// A string at the key, as redsync, redis-py, node-redlock, rslock and bsm/redislock have it.
    #[default]
    Plain,
    /// A hash at the key and a message when it is free, as Redisson has it.
    Redisson,
}

/// Which key is the lock of a resource: a text with `{name}` in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyPattern {
    pub(crate) before: String,
    pub(crate) after: String,
}

impl KeyPattern {
    /// Reads a pattern such as `lock:{name}`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] unless `{name}` is in it exactly once.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split("{name}").collect::<Vec<_>>()[..] {
            [before, after] => Ok(Self { before: before.to_owned(), after: after.to_owned() }),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a key pattern has {{name}} in it exactly once, as in lock:{{name}}; {text:?} has not"
                ),
            )),
        }
    }
}

impl RedisConfig {
    /// Reads an address, as it stands before the options of an engine URL:
    ///
    /// | address | servers |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one |
    /// | `redis+sentinel://[user:password@]host[:port],…/service[/db]` | the primary of a service |
    /// | `redis+cluster://[user:password@]host[:port],…` | a Cluster |
    ///
    /// `rediss`, `rediss+sentinel` and `rediss+cluster` are the same, encrypted. What is special in
    /// a user or a password is written as `%` and two hexadecimal digits.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], without repeating what could be a secret.
    pub fn parse(address: &str) -> Result<Self> {
        address::parse(address)
    }

    pub(crate) fn new(servers: Servers, login: Login, db: i64, tls: Option<Tls>) -> Self {
        Self {
            servers,
            tls,
            db,
            login,
            sentinel_login: Login::default(),
            namespace: String::new(),
            key: KeyPattern::default(),
            dialect: Dialect::Plain,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
            source: None,
        }
    }

    /// The same servers, seen from inside `namespace`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The same servers with calls bounded like this.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// The same servers with locks at these keys.
    #[must_use]
    pub fn key(mut self, pattern: KeyPattern) -> Self {
        self.key = pattern;
        self
    }

    /// The same servers with locks as this client has them.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }
}
