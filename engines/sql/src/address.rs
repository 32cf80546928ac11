//! Addresses of servers, as they stand before the options of an engine URL.

use std::fmt;
use std::path::PathBuf;

use palisade_core::{Error, ErrorKind, Result, percent_decode};

/// The files of an encrypted connection.
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
    /// The user; the one of the operating system if there is none.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "…");
        f.debug_struct("Login").field("user", &self.user).field("password", &password).finish()
    }
}

/// What a kind of server calls its addresses.
pub(crate) struct Kind {
    pub(crate) schemes: &'static [&'static str],
    pub(crate) example: &'static str,
    /// Where it listens unless told otherwise.
    pub(crate) port: u16,
}

/// The parts of an address.
#[derive(Debug)]
pub(crate) struct Address {
    /// A name or an address; without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) login: Login,
    pub(crate) database: Option<String>,
}

impl Address {
    /// Reads `scheme://[user[:password]@]host[:port][/database]`, without repeating what could be a secret.
    pub(crate) fn parse(address: &str, kind: &Kind) -> Result<Self> {
        let rest = address
            .split_once("://")
            .filter(|(scheme, _)| kind.schemes.contains(scheme))
            .ok_or_else(|| invalid(format!("an address looks like {}", kind.example)))?
            .1;
        // The last one: a password may hold an @ that nobody encoded.
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (parse_login(login)?, rest),
            None => (Login::default(), rest),
        };
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = percent_decode(database)?;
        let (host, port) = parse_place(place, kind)?;
        Ok(Self { host, port, login, database: (!database.is_empty()).then_some(database) })
    }
}

/// Where a server is, for people.
pub(crate) fn place(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn parse_login(text: &str) -> Result<Login> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(percent_decode(password)?)),
        None => (text, None),
    };
    let user = percent_decode(user)?;
    Ok(Login { user: (!user.is_empty()).then_some(user), password })
}

fn parse_place(text: &str, kind: &Kind) -> Result<(String, u16)> {
    if text.contains(',') {
        return Err(invalid("an address names one server: the primary, or what leads to it"));
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(invalid(format!("an address names a host, as in {}", kind.example)));
    }
    // What is no port may be a password without its @: it is not repeated.
    let port = port
        .map_or(Ok(kind.port), |port| port.parse().map_err(|_| invalid("what follows the host is no port")));
    Ok((percent_decode(host)?, port?))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { schemes: &["db"], example: "db://user@host:7/database", port: 7 };

    #[test]
    fn addresses() {
        let address = Address::parse("db://me:s%40c@db.example:6000/my%20shop", &KIND).unwrap();
        assert_eq!((address.host.as_str(), address.port), ("db.example", 6000));
        assert_eq!(address.database.as_deref(), Some("my shop"));
        assert_eq!(address.login, Login { user: Some("me".into()), password: Some("s@c".into()) });
        let plain = Address::parse("db://[::1]", &KIND).unwrap();
        assert_eq!(
            (place(&plain.host, plain.port), plain.database, plain.login),
            ("[::1]:7".into(), None, Login::default())
        );
        for bad in ["db://", "mysql://a", "db://a,b", "db://me:hunter2", "db://@/x"] {
            let message = Address::parse(bad, &KIND).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let address = Address::parse("db://me:hunter2@h", &KIND).unwrap();
        assert!(!format!("{address:?}").contains("hunter2"));
    }
}
