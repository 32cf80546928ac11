use std::fmt;
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Result};

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
        not(any(feature = "redis", feature = "redlock")),
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
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((percent_decode(name)?, percent_decode(value)?))
            })
            .collect::<Result<_>>()?;
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
                    invalid(format!("option {name} is a duration such as 500ms or 15s, not {value:?}"))
                })
            })
            .transpose()
    }

    /// The address for people: without user, password and options.
    #[cfg(feature = "redlock")]
    pub(crate) fn shown(&self) -> String {
        match self.raw.strip_prefix("//") {
            Some(rest) => {
                format!("{}://{}", self.scheme, rest.rsplit_once('@').map_or(rest, |(_, host)| host))
            }
            None => format!("{}:{}", self.scheme, self.raw),
        }
    }

    /// Fails if an option was not taken.
    pub(crate) fn finish(&self, known: &str) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(invalid(format!("{name:?} is no option of a {}: URL; there are {known}", self.scheme)))
            }
        }
    }
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

pub(crate) fn percent_decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first == b'%' {
            let code = rest
                .get(..2)
                .and_then(|code| std::str::from_utf8(code).ok())
                .and_then(|code| u8::from_str_radix(code, 16).ok())
                .ok_or_else(|| {
                    invalid("a % in an engine URL is followed by two hexadecimal digits; write %25 for %")
                })?;
            bytes.push(code);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).map_err(|_| invalid("an engine URL is UTF-8 text"))
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
    fn nonsense_is_an_error() {
        for bad in ["", "nothing", "file:%zz", "file:%f", "file:%ff%fe"] {
            assert!(EngineUrl::parse(bad).is_err(), "{bad}");
        }
        assert!(EngineUrl::parse("file:x?ttl=soon").unwrap().take_duration("ttl").is_err());
    }

    #[test]
    fn debug_shows_no_secret() {
        let url = EngineUrl::parse("redis://user:hunter2@host?password=hunter2").unwrap();
        assert!(!format!("{url:?}").contains("hunter2"));
    }
}
