use palisade_core::{Error, ErrorKind, Result, percent_decode};

use crate::config::{EtcdConfig, Login, Tls};

const PORT: u16 = 2379;

pub(crate) fn parse(address: &str) -> Result<EtcdConfig> {
    let usual = || invalid("an etcd address is etcd://host:2379, or etcd://a:2379,b:2379,c:2379");
    let (scheme, rest) = address.split_once("://").ok_or_else(usual)?;
    let tls = match scheme {
        "etcd" => None,
        "etcds" => Some(Tls::default()),
        _ => return Err(invalid("an etcd address begins with etcd: or etcds:")),
    };
    let (login, hosts) = match rest.rsplit_once('@') {
        Some((login, hosts)) => (Some(parse_login(login)?), hosts),
        None => (None, rest),
    };
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    if hosts.contains('/') {
        return Err(invalid("nothing follows the hosts of an etcd address; keys begin with option prefix"));
    }
    let servers = hosts.split(',').map(parse_host).collect::<Result<_>>()?;
    Ok(EtcdConfig::new(servers, login, tls))
}

fn parse_login(text: &str) -> Result<Login> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Ok(Login { user: percent_decode(user)?, password: percent_decode(password)? })
}

fn parse_host(text: &str) -> Result<String> {
    // Without repeating it: what was meant to be a login may stand here.
    let bad = || {
        invalid(
            "what should be a host and port is none, such as 10.0.0.7:2379 or [::1]:2379; before them comes user:password@",
        )
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']').ok_or_else(bad)?;
            (
                format!("[{host}]"),
                port.strip_prefix(':').or_else(|| port.is_empty().then_some("")).ok_or_else(bad)?,
            )
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

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let one = parse("etcd://h").unwrap();
        assert_eq!((one.servers, one.tls, one.login), (vec!["h:2379".to_owned()], None, None));
        let three = parse("etcds://me:p%40ss@a:1,[::1],c:3/").unwrap();
        assert_eq!(three.servers, ["a:1", "[::1]:2379", "c:3"]);
        assert_eq!(three.tls, Some(Tls::default()));
        assert_eq!(three.login, Some(Login { user: "me".into(), password: "p@ss".into() }));
    }

    #[test]
    fn nonsense_is_refused_without_repeating_a_secret() {
        for bad in [
            "etcd:h",
            "etcd://",
            "etcd://a,,b",
            "etcd://h:x",
            "etcd://h/path",
            "etcd://u:hunter2@h:port",
            "etcd://u:hunter2",
            "etcd://u:hunter2%zz@h",
            "etcd://u:hunter2%+f@h",
            "etcd://[::1",
            "http://h",
        ] {
            let message = parse(bad).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
