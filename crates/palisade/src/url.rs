use std::fmt;
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Result, percent_decode};

/// An engine's address: `scheme:rest?option=value&…`.
///
/// Not a general URL: `file:relative` and `redlock:redis://a,redis://b` are addresses too.
#[derive(Clone)]
pub(crate) struct EngineUrl {
    pub(crate) scheme: String,
    /// Everything between the scheme and the options, percent-decoded.
    pub(crate) rest: String,
    /// The same, as it was written: for addresses that have parts of their own to decode.
    #[cfg_attr(
        not(any(
            feature = "etcd",
            feature = "mysql",
            feature = "postgres",
            feature = "redis",
            feature = "redlock",
            feature = "zookeeper"
        )),
        expect(dead_code, reason = "network engines only")
    )]
    pub(crate) raw: String,
    options: Vec<(String, String)>,
}

impl EngineUrl {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| {
            invalid("an engine URL looks like `file:/var/lib/palisade` or `memory:`; this one has no scheme")
        })?;
        // A `?` in a login is part of it: options come after the host.
        let host = if rest.starts_with("//") { rest.rfind('@').map_or(0, |at| at + 1) } else { 0 };
        let (rest, query) = match rest[host..].find('?') {
            Some(at) => (&rest[..host + at], &rest[host + at + 1..]),
            None => (rest, ""),
        };
        let options: Vec<(String, String)> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((percent_decode(name)?, percent_decode(value)?))
            })
            .collect::<Result<_>>()?;
        refuse_twice(&options)?;
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            rest: percent_decode(rest)?,
            raw: rest.to_owned(),
            options,
        })
    }

    /// Takes an option out; what is left at the end is unknown.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(known, _)| known == name)?;
        Some(self.options.remove(at).1)
    }

    pub(crate) fn take_duration(&mut self, name: &str) -> Result<Option<Duration>> {
        self.take(name)
            .map(|value| {
                humantime::parse_duration(&value).map_err(|_| {
                    invalid(format!(
                        "option {name} is a duration such as 500ms or 15s, not {}",
                        quoted(&value)
                    ))
                })
            })
            .transpose()
    }

    /// As [`Self::take_duration`], for how long something may take: no time at all would let nothing succeed.
    pub(crate) fn take_limit(&mut self, name: &str) -> Result<Option<Duration>> {
        match self.take_duration(name)? {
            Some(Duration::ZERO) => Err(invalid(format!(
                "option {name} must be above zero, such as 5s; nothing is done in no time"
            ))),
            limit => Ok(limit),
        }
    }

    /// The address for people: without user, password and options.
    #[cfg(feature = "redlock")]
    pub(crate) fn shown(&self) -> String {
        let Some(rest) = self.raw.strip_prefix("//") else { return format!("{}:{}", self.scheme, self.raw) };
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        // What is no host and port may be a login that lacks its @.
        let port =
            place.split('/').next().and_then(|host| host.rsplit_once(':')).map_or("", |(_, port)| port);
        let plain = port.bytes().all(|byte| byte.is_ascii_digit());
        format!("{}://{}", self.scheme, if plain { place } else { "…" })
    }

    /// Whether an option has what belongs to another URL: then it is none, but what follows a `?` that was not meant to end
    /// anything, and may hold a login.
    #[cfg(feature = "redlock")]
    pub(crate) fn has_addresses_as_options(&self) -> bool {
        let is_address = |text: &String| text.contains("://") || text.contains('@');
        self.options.iter().any(|(name, value)| is_address(name) || is_address(value))
    }

    /// Fails if an option was not taken.
    pub(crate) fn finish(&self, known: &str) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => {
                let (name, scheme) = (quoted(name), &self.scheme);
                Err(invalid(format!("{name} is no option of a {scheme}: URL; there are {known}")))
            }
        }
    }
}

/// A part of a URL as people see it again, unless it may hold a login.
pub(crate) fn quoted(part: &str) -> String {
    if part.contains('@') { "\"…\"".to_owned() } else { format!("{part:?}") }
}

/// Whichever of the two were taken, the other one would be ignored in silence.
fn refuse_twice(options: &[(String, String)]) -> Result<()> {
    for (at, (name, _)) in options.iter().enumerate() {
        if options[..at].iter().any(|(before, _)| before == name) {
            return Err(invalid(format!("option {} is given twice in the URL; give it once", quoted(name))));
        }
    }
    Ok(())
}

impl fmt::Debug for EngineUrl {
    /// Leaves out everything that could hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:…", self.scheme)
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_one_by_one_and_unknown_ones_are_named() {
        let mut url = EngineUrl::parse("file:/a%20b/c?ttl=2s&sync=full&typo=1").unwrap();
        assert_eq!((url.scheme.as_str(), url.rest.as_str()), ("file", "/a b/c"));
        assert_eq!(url.take_duration("ttl").unwrap(), Some(Duration::from_secs(2)));
        assert_eq!(url.take("sync").as_deref(), Some("full"));
        assert!(url.finish("sync").unwrap_err().to_string().contains("\"typo\""));
    }

    #[test]
    fn a_question_mark_in_a_login_ends_nothing() {
        let mut url = EngineUrl::parse("redis://u:hun?ter2@h:1?ttl=2s").unwrap();
        assert_eq!(url.raw, "//u:hun?ter2@h:1");
        assert_eq!(url.take("ttl").as_deref(), Some("2s"));
        assert_eq!(EngineUrl::parse("redis://u:hun?ter2@h:1").unwrap().raw, "//u:hun?ter2@h:1");
    }

    #[cfg(feature = "redlock")]
    #[test]
    fn an_address_is_shown_without_what_may_be_a_secret() {
        for (url, shown) in [
            ("redis://u:hunter2@h:1/2?x=1", "redis://h:1/2"),
            ("redis://u:hunter2", "redis://…"),
            ("redis://:hunter2@h", "redis://h"),
            ("redis://u:hun?ter2@h:7", "redis://h:7"),
            ("memory:shared", "memory:shared"),
        ] {
            assert_eq!(EngineUrl::parse(url).unwrap().shown(), shown);
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for bad in ["", "nothing", "file:%zz", "file:%f", "file:%ff%fe"] {
            assert!(EngineUrl::parse(bad).is_err(), "{bad}");
        }
        assert!(EngineUrl::parse("file:x?ttl=soon").unwrap().take_duration("ttl").is_err());
    }

    #[test]
    fn an_option_is_given_once() {
        let message = EngineUrl::parse("redis://h?ttl=5s&key=k&ttl=6s").unwrap_err().to_string();
        assert!(message.contains("\"ttl\" is given twice") && !message.contains("6s"), "{message}");
        EngineUrl::parse("redis://h?ttl=5s&call-timeout=6s").unwrap();
    }

    #[test]
    fn a_limit_is_above_zero() {
        for zero in ["0", "0s", "0ms"] {
            let mut url = EngineUrl::parse(&format!("redis://h?call-timeout={zero}")).unwrap();
            let message = url.take_limit("call-timeout").unwrap_err().to_string();
            assert!(message.contains("call-timeout must be above zero"), "{message}");
        }
        let mut url = EngineUrl::parse("redis://h?call-timeout=1ms").unwrap();
        assert_eq!(url.take_limit("call-timeout").unwrap(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn what_may_be_a_login_is_not_repeated() {
        for url in ["memory:x?ttl=u:hunter2@h", "memory:x?u:hunter2@h=1&u:hunter2@h=2"] {
            let problem = match EngineUrl::parse(url) {
                Ok(mut url) => url.take_duration("ttl").unwrap_err(),
                Err(problem) => problem,
            };
            assert!(!problem.to_string().contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let url = EngineUrl::parse("redis://user:hunter2@host?password=hunter2").unwrap();
        assert!(!format!("{url:?}").contains("hunter2"));
    }
}
