use std::fmt;
use std::str::FromStr;

use http::{HeaderName, HeaderValue};
use palisade_core::{FencingToken, Name, Source, Token, TokenKind, percent_decode};

/// The header that carries a token.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("palisade-token");

/// A token on its way: `palisade-token: 34; resource=card%3A7; source=etcd-a1`.
///
/// First the number, then parameters in any order, apart by semicolons:
///
/// | parameter | meaning |
/// |---|---|
/// | `resource=` | what was locked; percent-encoded |
/// | `source=` | which engine counted the token; percent-encoded, at most 255 bytes decoded |
/// | `slot=` | the slot that was granted, if any |
/// | `shared` | the grant was shared: one of many readers |
///
/// A parameter that is not known is an error: what it says might matter.
///
/// ```
/// use palisade_fence::http::TokenHeader;
/// let sent: TokenHeader = "34; resource=card%3A7; source=etcd-a1".parse()?;
/// assert_eq!(sent.resource().as_str(), "card:7");
/// assert_eq!(sent.to_string(), "34; resource=card%3A7; source=etcd-a1");
/// # Ok::<(), palisade_fence::http::InvalidTokenHeader>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHeader {
    resource: Name,
    token: FencingToken,
}

impl TokenHeader {
    /// How long the name of a source may be, in bytes, decoded: what clients send is stored.
    pub const MAX_SOURCE_BYTES: usize = 255;

    /// The header for a token of `resource`: `TokenHeader::new(&guard.resource(), &guard)`.
    pub fn new(resource: &Name, token: impl Into<FencingToken>) -> Self {
        Self { resource: resource.clone(), token: token.into() }
    }

    /// What was locked.
    pub fn resource(&self) -> &Name {
        &self.resource
    }

    /// The token.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// As a header's value.
    ///
    /// # Panics
    /// Never: what no header may hold is encoded.
    pub fn to_value(&self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("encoded text is a header's value")
    }
}

impl From<&TokenHeader> for FencingToken {
    fn from(header: &TokenHeader) -> Self {
        header.token.clone()
    }
}

impl fmt::Display for TokenHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FencingToken { token, kind, slot, source } = &self.token;
        write!(
            f,
            "{token}; resource={}; source={}",
            encoded(self.resource.as_str()),
            encoded(source.as_str())
        )?;
        if let Some(slot) = slot {
            write!(f, "; slot={slot}")?;
        }
        if *kind == TokenKind::Shared { f.write_str("; shared") } else { Ok(()) }
    }
}

impl FromStr for TokenHeader {
    type Err = InvalidTokenHeader;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(';').map(str::trim);
        let number = parts.next().unwrap_or_default();
        let token: Token = number.parse().map_err(InvalidTokenHeader)?;
        let (mut resource, mut source, mut slot, mut kind) = (None, None, None, TokenKind::Exclusive);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let twice = match name {
                "resource" => resource.replace(named(value)?).is_some(),
                "source" => source.replace(sourced(value)?).is_some(),
                "slot" => {
                    let number =
                        value.parse().map_err(|_| InvalidTokenHeader("slot is no number".to_owned()))?;
                    slot.replace(number).is_some()
                }
                "shared" if !part.contains('=') => {
                    std::mem::replace(&mut kind, TokenKind::Shared) == TokenKind::Shared
                }
                _ => return Err(InvalidTokenHeader(format!("{name:?} is not known"))),
            };
            if twice {
                return Err(InvalidTokenHeader(format!("{name} is there twice")));
            }
        }
        let missing = |what: &str| InvalidTokenHeader(format!("{what}= is missing"));
        let resource = resource.ok_or_else(|| missing("resource"))?;
        let source = Source::new(source.ok_or_else(|| missing("source"))?);
        Ok(Self { resource, token: FencingToken { token, kind, slot, source } })
    }
}

fn named(text: &str) -> Result<Name, InvalidTokenHeader> {
    Name::new(decoded(text)?).map_err(|problem| InvalidTokenHeader(problem.to_string()))
}

fn sourced(text: &str) -> Result<String, InvalidTokenHeader> {
    let (most, source) = (TokenHeader::MAX_SOURCE_BYTES, decoded(text)?);
    if source.len() > most {
        return Err(InvalidTokenHeader(format!("source is longer than {most} bytes")));
    }
    Ok(source)
}

fn decoded(text: &str) -> Result<String, InvalidTokenHeader> {
    percent_decode(text).map_err(|problem| InvalidTokenHeader(problem.to_string()))
}

fn digit(half: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(half)])
}

fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

/// A header that is no token's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTokenHeader(String);

impl fmt::Display for InvalidTokenHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "palisade-token: {}", self.0)
    }
}

impl std::error::Error for InvalidTokenHeader {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was() {
        for (number, kind, slot, source, resource) in [
            (1, TokenKind::Exclusive, None, "etcd-a1", "card:7"),
            (Token::MAX, TokenKind::Shared, None, "a;b=c d\n", "x; y=%🚲"),
            (9, TokenKind::Exclusive, Some(3), "", "/locks/a b"),
        ] {
            let token = Token::new(number).unwrap();
            let token = FencingToken { token, kind, slot, source: Source::new(source) };
            let header = TokenHeader::new(&Name::new(resource).unwrap(), &token);
            assert_eq!(header.to_value().to_str().unwrap().parse(), Ok(header));
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for bad in [
            "",
            "x; resource=a; source=b",
            "0; resource=a; source=b",
            "1; resource=a",
            "1; source=b",
            "1; resource=a; source=b; resource=c",
            "1; resource=a; source=b; shared; shared",
            "1; resource=a; source=b; slot=x",
            "1; resource=a; source=b; valid-until=never",
            "1; resource=; source=b",
            "1; resource=%zz; source=b",
            "9223372036854775808; resource=a; source=b",
        ] {
            assert!(bad.parse::<TokenHeader>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_source_has_a_bound() {
        for (bytes, is_good) in [(255, true), (256, false), (100_000, false)] {
            for letter in ["a", "%41"] {
                let text = format!("1; resource=a; source={}", letter.repeat(bytes));
                assert_eq!(text.parse::<TokenHeader>().is_ok(), is_good, "{bytes} of {letter}");
            }
        }
    }
}
