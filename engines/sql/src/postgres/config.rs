use std::time::Duration;

use palisade_core::Result;

use crate::address::{self, Address, Kind, Login, Tls};

/// Where a database is, and what to do there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// A name or an address; without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The database; the one named like the user if there is none.
    pub database: Option<String>,
    /// Who connects.
    pub login: Login,
    /// Encrypts, and checks who answers, if there is any.
    pub tls: Option<Tls>,
    /// The schema with Palisade's tables and functions.
    pub schema: String,
    /// Separates tenants; never visible across.
    pub namespace: String,
    /// How this client hears that it is its turn.
    pub listen: Listen,
    /// How often to look where nobody tells.
    pub poll: Duration,
    /// How names become the numbers that session locks go by.
    pub keys: Keys,
    /// How many connections session locks may have at most: one for each claim that waits, and a few more.
    pub connections: usize,
    /// Bounds the making of a connection.
    pub connect_timeout: Duration,
    /// Bounds each call.
    pub call_timeout: Duration,
}

/// How a client hears that it is its turn.
#[derive(Debug, Clone, Default)]
pub enum Listen {
    /// Over a connection like the others, unless a pooler is found in between: then by polling.
    #[default]
    Same,
    /// Over a connection that is made like this, past the pooler.
    At(Box<PostgresConfig>),
    /// By polling.
    Poll,
}

const KIND: Kind =
    Kind { schemes: &["postgres", "postgresql"], example: "postgres://user@host:5432/database", port: 5432 };

/// How a name becomes the number of a session lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keys {
    /// The first 64 bits of a SHA-256 over namespace and name.
    #[default]
    Palisade,
    /// As sqlx's `PgAdvisoryLock::new` has it, so that both exclude each other. It knows no namespaces.
    Sqlx,
}

impl PostgresConfig {
    /// Reads an address, as it stands before the options of an engine URL:
    /// `postgres://[user[:password]@]host[:port][/database]`. What is special in a part of it is written as `%` and
    /// two hexadecimal digits.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](palisade_core::ErrorKind::Invalid), without repeating what could be a secret.
    pub fn parse(address: &str) -> Result<Self> {
        let Address { host, port, login, database } = Address::parse(address, &KIND)?;
        Ok(Self::new(host, port, login, database))
    }

    fn new(host: String, port: u16, login: Login, database: Option<String>) -> Self {
        Self {
            host,
            port,
            database,
            login,
            tls: None,
            schema: "palisade".to_owned(),
            namespace: String::new(),
            listen: Listen::default(),
            poll: Duration::from_millis(100),
            keys: Keys::default(),
            connections: 64,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
        }
    }

    /// The same database, seen from inside `namespace`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        address::place(&self.host, self.port)
    }
}
