use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::Result;

use super::{Target, no_server};
use crate::history::FaultKind;
use crate::misuse::misuse;

/// The engine that a user named: it is not ours to restart.
#[derive(Debug)]
struct Given {
    url: String,
    /// Its scheme.
    scheme: String,
    /// Where its only server listens, if a proxy can stand in between.
    server: Option<SocketAddr>,
}

pub(super) fn target(url: &str) -> Result<Box<dyn Target>> {
    let Some((scheme, _)) = url.split_once(':') else {
        misuse!(
            "{url:?} is no engine URL; see `palisade engines`, or try {}",
            super::local_names().join(", ")
        );
    };
    // A name that is not found now is the engine's to complain about.
    let server = place(url).and_then(|(from, to)| resolved(&url[from..to]));
    Ok(Box::new(Given { url: url.to_owned(), scheme: scheme.to_owned(), server }))
}

/// Where host and port stand in the URL of a single Redis server without TLS.
fn place(url: &str) -> Option<(usize, usize)> {
    let rest = url.strip_prefix("redis://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // What stands before the last @ is a login.
    let start = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let from = url.len() - rest.len();
    Some((from + start, from + end))
}

/// The address of a host, with Redis' port if none is named.
fn resolved(host: &str) -> Option<SocketAddr> {
    let port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let named = if port.is_some() { host.to_owned() } else { format!("{host}:6379") };
    named.to_socket_addrs().ok()?.next()
}

impl Given {
    fn is_memory(&self) -> bool {
        self.scheme == "memory"
    }

    /// Whether it is a server, or several, that somebody else looks after.
    fn is_served(&self) -> bool {
        self.scheme.starts_with("redis") || self.scheme == "redlock"
    }

    /// Why a fault cannot be done to servers that are not ours.
    fn refused_by_server(&self, fault: FaultKind) -> Option<String> {
        match fault {
            FaultKind::Pause | FaultKind::Kill | FaultKind::Cancel => None,
            FaultKind::Cut | FaultKind::Slow if self.server.is_some() => None,
            FaultKind::Cut | FaultKind::Slow => Some(match self.scheme.as_str() {
                "redis" => "its host is not found, so no proxy can stand in between".to_owned(),
                "rediss" => {
                    "a certificate is for the host's own name, not for a proxy's; try redis:".to_owned()
                }
                scheme => {
                    format!("{scheme}: has clients speak to several servers; a proxy stands before one")
                }
            }),
            FaultKind::Restart | FaultKind::Clock => Some(format!(
                "{} is not ours to restart or to put out of time; try one that is started for this: {}",
                self.name(),
                super::local_names().join(", ")
            )),
        }
    }
}

impl Target for Given {
    fn name(&self) -> String {
        match (self.url.rfind('@'), place(&self.url)) {
            (None, _) => self.url.clone(),
            // What stands before an @ can be a password, what follows the address another one's name.
            (Some(_), Some((from, to))) => format!("redis://{}", &self.url[from..to]),
            (Some(_), None) => format!("{}:", self.scheme),
        }
    }

    fn url(&self, via: &[SocketAddr]) -> String {
        if let (Some(proxy), Some((from, to))) = (via.first(), place(&self.url)) {
            return format!("{}{proxy}{}", &self.url[..from], &self.url[to..]);
        }
        // Workers of one process meet in a store that has a name.
        let unnamed = matches!(self.url.strip_prefix("memory:"), Some(rest) if rest.is_empty() || rest.starts_with('?'));
        if unnamed { self.url.replacen("memory:", "memory:under-test", 1) } else { self.url.clone() }
    }

    fn endpoints(&self) -> Vec<SocketAddr> {
        self.server.into_iter().collect()
    }

    fn crosses_processes(&self) -> bool {
        !self.is_memory()
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        match fault {
            FaultKind::Pause | FaultKind::Kill if self.is_memory() => Some(
                "the memory engine lives inside one process: there is no worker to stop or kill beside it"
                    .to_owned(),
            ),
            fault if self.is_served() => self.refused_by_server(fault),
            fault => no_server(fault, &format!("the engine at {}", self.name())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(url: &str) -> Box<dyn Target> {
        target(url).unwrap()
    }

    #[test]
    fn a_proxy_takes_the_place_of_host_and_port_and_of_nothing_else() {
        let proxy = SocketAddr::from(([127, 0, 0, 1], 9));
        for (url, expected) in [
            ("redis://127.0.0.1:7000", "redis://127.0.0.1:9"),
            ("redis://127.0.0.1/2?ttl=5s", "redis://127.0.0.1:9/2?ttl=5s"),
            ("redis://[::1]:7000?key=a{name}", "redis://127.0.0.1:9?key=a{name}"),
            ("redis://u:p@127.0.0.1:7000/2?ttl=5s", "redis://u:p@127.0.0.1:9/2?ttl=5s"),
        ] {
            let target = given(url);
            assert_eq!(target.endpoints().len(), 1, "{url}");
            assert_eq!(target.url(&[proxy]), expected);
            assert_eq!(target.url(&[]), url);
            assert_eq!(target.refuses(FaultKind::Cut), None);
            assert!(target.refuses(FaultKind::Restart).unwrap().contains("local:redis"));
        }
        assert_eq!(given("redis://127.0.0.1").endpoints()[0].port(), 6379);
    }

    #[test]
    fn servers_that_tell_their_addresses_have_no_proxy() {
        for url in ["rediss://127.0.0.1", "redis+sentinel://127.0.0.1/s", "redis+cluster://127.0.0.1"] {
            let target = given(url);
            assert!(target.endpoints().is_empty(), "{url}");
            assert!(target.refuses(FaultKind::Cut).is_some(), "{url}");
            assert!(target.refuses(FaultKind::Pause).is_none(), "{url}");
        }
    }

    #[test]
    fn names_have_no_secrets() {
        for url in [
            "redis://user:secret@127.0.0.1:7000/1?sentinel-user=secret",
            "redis://:se@cret@127.0.0.1",
            "rediss://user:secret@127.0.0.1",
            "redlock:redis://:secret@a,redis://:secret@b",
        ] {
            let name = given(url).name();
            assert!(!name.contains("cret"), "{name}");
        }
        assert_eq!(given("redis://u:p@127.0.0.1:7000/1").name(), "redis://127.0.0.1:7000");
    }
}
