use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use palisade_core::Result;

use crate::address;

/// Where the servers are, and where locks are on them.
///
/// ```
/// use palisade_etcd::EtcdConfig;
/// let config = EtcdConfig::parse("etcd://user:secret@10.0.0.7:2379,10.0.0.8:2379").unwrap().namespace("billing");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EtcdConfig {
    /// The servers; any of them will do, as `host:port`.
    pub servers: Vec<String>,
    /// Set if connections are encrypted.
    pub tls: Option<Tls>,
    /// Who logs in, if anyone has to.
    pub login: Option<Login>,
    /// Separates tenants of one cluster; the empty one is a namespace too.
    pub namespace: String,
    /// What every key begins with.
    pub prefix: String,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a verb may take before it fails with an unknown effect.
    pub call_timeout: Duration,
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
pub struct Login {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).field("password", &"…").finish()
    }
}

impl EtcdConfig {
    /// Reads `etcd://[user:password@]host[:port],…`; `etcds` is the same, encrypted. What is special
    /// in a user or a password is written as `%` and two hexadecimal digits.
    ///
    /// # Errors
    /// [`palisade_core::ErrorKind::Invalid`], without repeating what could be a secret.
    pub fn parse(address: &str) -> Result<Self> {
        address::parse(address)
    }

    pub(crate) fn new(servers: Vec<String>, login: Option<Login>, tls: Option<Tls>) -> Self {
        Self {
            servers,
            tls,
            login,
            namespace: String::new(),
            prefix: String::new(),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
        }
    }

    /// The same servers, seen from inside `namespace`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The same servers, with keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
}
