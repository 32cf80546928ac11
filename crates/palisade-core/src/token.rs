use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

use crate::Mode;

/// A fencing token: 1 … 2^63 − 1, rising for ever per resource.
///
/// If one grant returned before another was asked for, its token is smaller. The range fits a
/// signed SQL column. Tokens travel as text in JSON, because 2^53 is where other languages round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The greatest token.
    pub const MAX: u64 = i64::MAX as u64;

    /// The token `number`, if it lies in range.
    pub const fn new(number: u64) -> Option<Self> {
        if number > Self::MAX {
            return None;
        }
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The token as a number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| format!("a token is a number from 1 to {}", Self::MAX))
    }
}

/// Who counts the tokens: one etcd cluster, one embedded folder.
///
/// Tokens of two sources do not compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(Arc<str>);

impl Source {
    /// The source called `id`.
    pub fn new(id: impl AsRef<str>) -> Self {
        Self(id.as_ref().into())
    }

    /// Its id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token with all that a fence needs to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencingToken {
    /// The number.
    pub token: Token,
    /// Whether the grant was shared.
    pub kind: TokenKind,
    /// The slot it was granted, if any: each slot has a fence of its own.
    pub slot: Option<u32>,
    /// Who counted it.
    pub source: Source,
}

impl FencingToken {
    /// The token of a grant in `mode`.
    pub fn of_grant(token: Token, mode: Mode, slot: Option<u32>, source: Source) -> Self {
        let kind = match mode {
            Mode::Shared => TokenKind::Shared,
            Mode::Exclusive | Mode::Slot { .. } => TokenKind::Exclusive,
        };
        Self { token, kind, slot, source }
    }
}

/// So that whoever takes a token takes a reference to one too, as it takes a guard's.
impl From<&FencingToken> for FencingToken {
    fn from(token: &FencingToken) -> Self {
        token.clone()
    }
}

/// Whether others may hold the same resource, or the same slot, at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// The only holder of its resource or slot.
    Exclusive,
    /// One of many readers.
    Shared,
}
