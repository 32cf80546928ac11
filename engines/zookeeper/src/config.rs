use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use palisade_core::Result;

use crate::address;
pub use crate::proto::Acl;

/// Where the servers are, and where locks are on them.
///
/// ```
/// use palisade_zookeeper::ZooKeeperConfig;
/// let config = ZooKeeperConfig::parse("zk://user:secret@10.0.0.7,10.0.0.8:2181/app").unwrap().namespace("billing");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ZooKeeperConfig {
    /// The servers; any of them will do, as `host:port`.
    pub servers: Vec<String>,
    /// What all paths are below, as `/app`; empty for none.
    pub chroot: String,
    /// Below which locks are, as `/locks`.
    pub root: String,
    /// Whose names for nodes are used.
    pub dialect: Dialect,
    /// Set if connections are encrypted.
    pub tls: Option<Tls>,
    /// Who logs in, if anyone has to.
    pub login: Option<Login>,
    /// How to log in.
    pub auth: Auth,
    /// Who may do what with our nodes.
    pub acl: Acl,
    /// Separates tenants of one cluster; the empty one is a namespace too.
    pub namespace: String,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a verb may take before it fails with an unknown effect.
    pub call_timeout: Duration,
}

/// Whose names nodes have: those clients see our locks, and we see theirs in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// Apache Curator's.
    #[default]
    Curator,
    /// Python's kazoo's.
    Kazoo,
}

/// How to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Auth {
    /// Says user and password, which the server never refuses; they count where nodes ask for them.
    #[default]
    Digest,
    /// Proves the password (SASL, DIGEST-MD5) to a server that knows the user.
    Sasl,
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

impl ZooKeeperConfig {
    /// Reads `zk://[user:password@]host[:port],…[/chroot]`; `zks` is the same, encrypted. What is special
    /// in a user or a password is written as `%` and two hexadecimal digits.
    ///
    /// # Errors
    /// [`palisade_core::ErrorKind::Invalid`], without repeating what could be a secret.
    pub fn parse(address: &str) -> Result<Self> {
        address::parse(address)
    }

    pub(crate) fn new(servers: Vec<String>, chroot: String, login: Option<Login>, tls: Option<Tls>) -> Self {
        Self {
            servers,
            chroot,
            root: "/locks".to_owned(),
            dialect: Dialect::default(),
            tls,
            login,
            auth: Auth::default(),
            acl: Acl::default(),
            namespace: String::new(),
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

    /// The same servers, with locks below another path, such as `/locks`.
    ///
    /// # Errors
    /// [`palisade_core::ErrorKind::Invalid`] if it is no path.
    pub fn root(mut self, root: &str) -> Result<Self> {
        self.root = address::path(root)?;
        if self.root.is_empty() {
            return Err(address::invalid("option root is a path such as /locks, and not the top itself"));
        }
        Ok(self)
    }
}
