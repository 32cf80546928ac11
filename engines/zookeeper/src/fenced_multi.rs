use std::fmt::Write as _;

use palisade_core::{Error, ErrorKind, FencingToken, Result, TokenKind};

/// What a caller adds to a ZooKeeper `multi` of their own, over any client, so that only the latest holder's takes
/// effect: a `check` of one node, the fence.
///
/// The fence holds the source and the greatest token that has been here. A holder *opens* it first, which writes it: from
/// then on no older one's `check` passes, because a node's version changes with every write. Tokens of another source
/// do not compare, and do not pass either.
///
/// ```
/// use palisade_core::{FencingToken, Source, Token, TokenKind};
/// use palisade_zookeeper::{FencedMulti, Opening};
/// let token = FencingToken {
///     token: Token::new(42).unwrap(),
///     kind: TokenKind::Exclusive,
///     slot: None,
///     source: Source::new("zk-a1"),
/// };
/// let fenced = FencedMulti::new("/orders-fence", &token)?;
/// // To open: read the node at path(); create it, or set it at the version that was read, to mark().
/// assert_eq!(fenced.open(Some((b"zk-a1 00000000000000000041", 7)))?, Opening::Set { version: 7 });
/// assert_eq!(fenced.open(None)?, Opening::Create);
/// assert!(fenced.open(Some((b"zk-a1 00000000000000000043", 8))).is_err());
/// // The version after that write is what each multi checks at path().
/// # Ok::<(), palisade_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedMulti {
    path: String,
    source: String,
    token: u64,
}

/// How a fence is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// By creating its node, persistent, with the mark. Its version is 0 then.
    Create,
    /// By setting its node's data to the mark, if its version is still this one. It is one greater then.
    Set {
        /// The version that was read.
        version: i32,
    },
}

impl FencedMulti {
    /// Fences with `token`, at a node of the caller's choice that nothing else writes. Slots have nodes of their own, beside it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a shared token: readers write nothing.
    pub fn new(path: impl Into<String>, token: &FencingToken) -> Result<Self> {
        if token.kind == TokenKind::Shared {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a shared token fences no writes: hold the resource alone",
            ));
        }
        let mut path = path.into();
        if let Some(slot) = token.slot {
            let _ = write!(path, "-{slot}");
        }
        Ok(Self { path, source: token.source.as_str().to_owned(), token: token.token.get() })
    }

    /// The fence's node: what is to be read, written to open it, and checked by each `multi`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What opening it writes there.
    pub fn mark(&self) -> Vec<u8> {
        format!("{} {:020}", self.source, self.token).into_bytes()
    }

    /// How to open a fence that was found like this: its data and version, or `None` if there is none. If that fails
    /// because the node has changed meanwhile, read it again.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if a later holder was here, [`ErrorKind::SourceMismatch`] if its tokens do not compare,
    /// [`ErrorKind::Corrupt`] if it is no fence.
    pub fn open(&self, found: Option<(&[u8], i32)>) -> Result<Opening> {
        let Some((data, version)) = found else { return Ok(Opening::Create) };
        let text = String::from_utf8_lossy(data);
        let mark =
            text.rsplit_once(' ').and_then(|(source, token)| Some((source, token.parse::<u64>().ok()?)));
        let (source, token) = mark
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("what is at {} is no fence", self.path)))?;
        if source != self.source {
            let message = format!("the fence counts tokens of {source}, not of {}", self.source);
            return Err(Error::new(ErrorKind::SourceMismatch, message));
        }
        if token > self.token {
            let message = format!("token {token} has been here, which is later than {}", self.token);
            return Err(Error::new(ErrorKind::Lost, message));
        }
        Ok(Opening::Set { version })
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Source, Token};

    use super::*;

    fn token(number: u64, source: &str) -> FencingToken {
        let token = Token::new(number).unwrap();
        FencingToken { token, kind: TokenKind::Exclusive, slot: None, source: Source::new(source) }
    }

    fn opens(new: &FencingToken, old: &FencingToken) -> Result<Opening> {
        let old = FencedMulti::new("/k", old).unwrap().mark();
        FencedMulti::new("/k", new).unwrap().open(Some((&old, 3)))
    }

    #[test]
    fn later_and_equal_tokens_open_older_and_strange_ones_do_not() {
        for (new, old, expected) in [(5, 5, true), (10, 9, true), (9, 10, false), (Token::MAX, 1, true)] {
            assert_eq!(opens(&token(new, "a"), &token(old, "a")).is_ok(), expected, "{new} after {old}");
        }
        for (new, old) in [("a", "b"), ("a", "a b"), ("a b", "a")] {
            assert_eq!(opens(&token(5, new), &token(4, old)).unwrap_err().kind(), ErrorKind::SourceMismatch);
        }
        let fence = FencedMulti::new("/k", &token(5, "a")).unwrap();
        assert_eq!(fence.open(Some((b"hello", 0))).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn slots_are_fenced_apart_and_readers_not_at_all() {
        let slot = FencingToken { slot: Some(3), ..token(5, "a") };
        assert_eq!(FencedMulti::new("/k", &slot).unwrap().path(), "/k-3");
        let shared = FencingToken { kind: TokenKind::Shared, ..token(5, "a") };
        assert!(FencedMulti::new("/k", &shared).is_err());
    }
}
