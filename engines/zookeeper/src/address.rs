use palisade_core::{Error, ErrorKind, Result, percent_decode};

use crate::config::{Login, Tls, ZooKeeperConfig};
use crate::keys::is_plain;

const PORT: u16 = 2181;

pub(crate) fn parse(address: &str) -> Result<ZooKeeperConfig> {
    let usual = || invalid("a ZooKeeper address is zk://host:2181, or zk://a:2181,b:2181,c:2181/chroot");
    let (scheme, rest) = address.split_once("://").ok_or_else(usual)?;
    let tls = match scheme {
        "zk" => None,
        "zks" => Some(Tls::default()),
        _ => return Err(invalid("a ZooKeeper address begins with zk: or zks:")),
    };
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(parse_login(login)?), rest),
        None => (None, rest),
    };
    let (hosts, chroot) = match rest.split_once('/') {
        Some((hosts, chroot)) => (hosts, path(&format!("/{chroot}"))?),
        None => (rest, String::new()),
    };
    let servers = hosts.split(',').map(parse_host).collect::<Result<_>>()?;
    Ok(ZooKeeperConfig::new(servers, chroot, login, tls))
}

/// A path of ZooKeeper's, without a slash at its end; empty for the top.
pub(crate) fn path(text: &str) -> Result<String> {
    let text = percent_decode(text)?;
    let inner = text.strip_prefix('/').ok_or_else(|| invalid("a path begins with a slash, as /locks"))?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return Ok(String::new());
    }
    let bad = |part: &str| part.is_empty() || part == "." || part == ".." || !part.chars().all(is_plain);
    if inner.split('/').any(bad) {
        return Err(invalid("a path is made of parts that are neither empty nor dots, and of plain letters"));
    }
    Ok(format!("/{inner}"))
}

fn parse_login(text: &str) -> Result<Login> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Ok(Login { user: percent_decode(user)?, password: percent_decode(password)? })
}

fn parse_host(text: &str) -> Result<String> {
    // Without repeating it: what was meant to be a login may stand here.
    let bad = || {
        invalid(
            "what should be a host and port is none, such as 10.0.0.7:2181 or [::1]:2181; before them comes user:password@",
        )
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']').ok_or_else(bad)?;
            let port = port.strip_prefix(':').or_else(|| port.is_empty().then_some(""));
            (format!("[{host}]"), port.ok_or_else(bad)?)
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            (host.to_owned(), port)
        }
    };
    let odd =
        |letter: char| letter.is_whitespace() || letter.is_control() || "?#%\"<>\\^`{|}".contains(letter);
    if host.is_empty() || host.contains(odd) {
        return Err(bad());
    }
    let port: u16 = if port.is_empty() { PORT } else { port.parse().map_err(|_| bad())? };
    Ok(format!("{host}:{port}"))
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let one = parse("zk://h").unwrap();
        assert_eq!(
            (one.servers, one.chroot, one.tls, one.login),
            (vec!["h:2181".into()], String::new(), None, None)
        );
        let three = parse("zks://me:p%40ss@a:1,[::1],c:3/app/x/").unwrap();
        assert_eq!(three.servers, ["a:1", "[::1]:2181", "c:3"]);
        assert_eq!((three.tls, three.chroot.as_str()), (Some(Tls::default()), "/app/x"));
        assert_eq!(three.login, Some(Login { user: "me".into(), password: "p@ss".into() }));
        assert_eq!(parse("zk://h/").unwrap().root("/my/locks/").unwrap().root, "/my/locks");
    }

    #[test]
    fn nonsense_is_refused_without_repeating_a_secret() {
        for bad in [
            "zk:h",
            "zk://",
            "zk://a,,b",
            "zk://h:x",
            "zk://h/a//b",
            "zk://h/../b",
            "zk://u:hunter2@h:port",
            "zk://u:hunter2",
            "zk://u:hunter2%zz@h",
            "zk://[::1",
            "http://h",
        ] {
            let message = parse(bad).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
        let good = parse("zk://h").unwrap();
        assert!(good.clone().root("locks").is_err() && good.root("/").is_err());
    }
}
