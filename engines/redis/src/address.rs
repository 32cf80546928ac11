use std::fmt;

use palisade_core::{Error, ErrorKind, Result, percent_decode};

use crate::config::{Login, RedisConfig, Servers, Tls};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name or an address; without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Where Redis and Sentinel listen unless told otherwise.
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

pub(crate) fn parse(address: &str) -> Result<RedisConfig> {
    let (scheme, rest) =
        address.split_once("://").ok_or_else(|| invalid("a Redis address looks like redis://host:6379"))?;
    let (scheme, tls) = match scheme.strip_prefix("rediss") {
        Some(kind) => (format!("redis{kind}"), Some(Tls::default())),
        None => (scheme.to_owned(), None),
    };
    // The last one: a password may hold an @ that nobody encoded.
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (parse_login(login)?, rest),
        None => (Login::default(), rest),
    };
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    match scheme.as_str() {
        "redis" => {
            let [host] = &parse_hosts(hosts, REDIS_PORT)?[..] else {
                return Err(invalid(
                    "a redis: address names one server; for several there are redis+sentinel, redis+cluster and redlock",
                ));
            };
            Ok(RedisConfig::new(Servers::Single(host.clone()), login, parse_db(path)?, tls))
        }
        "redis+sentinel" => {
            let (service, db) = path.split_once('/').unwrap_or((path, ""));
            if service.is_empty() {
                return Err(invalid(
                    "a redis+sentinel: address names a service, as in redis+sentinel://a,b,c/mymaster",
                ));
            }
            let sentinels = parse_hosts(hosts, SENTINEL_PORT)?;
            let servers = Servers::Sentinel { sentinels, service: percent_decode(service)? };
            Ok(RedisConfig::new(servers, login, parse_db(db)?, tls))
        }
        "redis+cluster" if path.is_empty() => {
            let servers = Servers::Cluster(parse_hosts(hosts, REDIS_PORT)?);
            Ok(RedisConfig::new(servers, login, 0, tls))
        }
        "redis+cluster" => Err(invalid("a Cluster has one database: there is nothing after its hosts")),
        _ => Err(invalid("a Redis address begins with redis:, rediss:, redis+sentinel: or redis+cluster:")),
    }
}

fn parse_login(text: &str) -> Result<Login> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(percent_decode(password)?)),
        None => (text, None),
    };
    let user = percent_decode(user)?;
    Ok(Login { user: (!user.is_empty()).then_some(user), password })
}

fn parse_hosts(text: &str, usual: u16) -> Result<Vec<HostPort>> {
    text.split(',').map(|host| parse_host(host, usual)).collect()
}

fn parse_host(text: &str, usual: u16) -> Result<HostPort> {
    // Without repeating it: what was meant to be a login may stand here.
    let bad = || {
        invalid(
            "what should be a host and port is none, such as 10.0.0.7:6379 or [::1]:6379; before them comes user:password@",
        )
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']').ok_or_else(bad)?;
            (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some("")).ok_or_else(bad)?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(bad());
    }
    let port = if port.is_empty() { usual } else { port.parse().map_err(|_| bad())? };
    Ok(HostPort { host: host.to_owned(), port })
}

fn parse_db(text: &str) -> Result<i64> {
    match text {
        "" => Ok(0),
        number => {
            number.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
                invalid(format!("a database is a number, as in redis://host/2, not {number:?}"))
            })
        }
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host: &str, port: u16) -> HostPort {
        HostPort { host: host.to_owned(), port }
    }

    #[test]
    fn every_form_is_read() {
        let single = parse("redis://me:p%40ss@h:7/3").unwrap();
        assert_eq!(single.servers, Servers::Single(host("h", 7)));
        assert_eq!(
            (single.login.user.as_deref(), single.login.password.as_deref()),
            (Some("me"), Some("p@ss"))
        );
        assert_eq!((single.db, single.tls), (3, None));
        let usual = parse("rediss://:secret@[::1]").unwrap();
        assert_eq!(usual.servers, Servers::Single(host("::1", 6379)));
        assert_eq!((usual.login.user, usual.tls), (None, Some(Tls::default())));
        let sentinel = parse("redis+sentinel://a,b:1/main/2").unwrap();
        let sentinels = vec![host("a", 26379), host("b", 1)];
        assert_eq!(sentinel.servers, Servers::Sentinel { sentinels, service: "main".into() });
        assert_eq!(sentinel.db, 2);
        let cluster = parse("rediss+cluster://a:1,b:2").unwrap();
        assert_eq!(cluster.servers, Servers::Cluster(vec![host("a", 1), host("b", 2)]));
    }

    #[test]
    fn nonsense_is_refused_without_repeating_a_secret() {
        for bad in [
            "redis:h",
            "redis://",
            "redis://a,b",
            "redis://h:x",
            "redis://h/one",
            "redis://h/-1",
            "redis://u:hunter2@h:port",
            "redis://u:hunter2",
            "redis://:hunter2",
            "redis://u:hunter2%zz@h",
            "redis://[::1",
            "redis+sentinel://a,b",
            "redis+cluster://a/1",
            "redis+tcp://a",
        ] {
            let message = parse(bad).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
