use std::time::Duration;

use palisade_core::Result;

use super::{POLL, POLL_BESIDE_BELLS};
use crate::address::{self, Address, Kind, Login, Tls};

const KIND: Kind =
    Kind { schemes: &["mysql", "mariadb"], example: "mysql://user@host:3306/database", port: 3306 };

/// Where a database is, and what to do there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MySqlConfig {
    /// A name or an address; without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The database with Palisade's tables and procedures.
    pub database: String,
    /// Who connects.
    pub login: Login,
    /// Encrypts, and checks who answers, if there is any.
    pub tls: Option<Tls>,
    /// Separates tenants; never visible across.
    pub namespace: String,
    /// How often to look for those who wait.
    pub poll: Duration,
    /// How those who wait for a lease row hear of their turn.
    pub wake: Wake,
    /// How many connections session locks may have at most: one for each claim that waits, and a few more. Of lease rows
    /// with [`Wake::GetLock`]: how many of them wait at once, one for each resource.
    pub connections: usize,
    /// Bounds the making of a connection.
    pub connect_timeout: Duration,
    /// Bounds each call.
    pub call_timeout: Duration,
}

/// How those who wait for a lease row hear of their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// They look, every so often.
    Poll,
    /// They wait for a lock of the server's that whoever holds the resource alone has, too; and look, less often.
    GetLock,
}

impl MySqlConfig {
    /// Reads an address, as it stands before the options of an engine URL:
    /// `mysql://[user[:password]@]host[:port][/database]`, also `mariadb://…`. What is special in a part of it is
    /// written as `%` and two hexadecimal digits. The database is `palisade` if none is named.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](palisade_core::ErrorKind::Invalid), without repeating what could be a secret.
    pub fn parse(address: &str) -> Result<Self> {
        let Address { host, port, login, database } = Address::parse(address, &KIND)?;
        Ok(Self {
            host,
            port,
            database: database.unwrap_or_else(|| "palisade".to_owned()),
            login,
            tls: None,
            namespace: String::new(),
            poll: POLL,
            wake: Wake::Poll,
            connections: 64,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
        })
    }

    /// The same database, seen from inside `namespace`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The same, with those who wait woken by [`Wake::GetLock`], and looked after less often.
    #[must_use]
    pub fn wake_by_get_lock(mut self) -> Self {
        self.wake = Wake::GetLock;
        self.poll = POLL_BESIDE_BELLS;
        self
    }

    /// Where it is, for people.
    pub(super) fn place(&self) -> String {
        address::place(&self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_address_leaves_out() {
        let config = MySqlConfig::parse("mariadb://me:hunter2@h").unwrap();
        assert_eq!((config.place().as_str(), config.database.as_str()), ("h:3306", "palisade"));
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(MySqlConfig::parse("postgres://h").is_err());
    }
}
