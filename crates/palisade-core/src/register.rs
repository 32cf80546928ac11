use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;

use crate::{Error, ErrorKind, Fence, FenceRefusal, FencingToken, Result, Token};

/// The longest value a register holds. Every engine we speak to takes it in one request.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The version of a register: rises with every write and every delete, and never comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of a register that was never written.
    pub const NEVER: Self = Self(0);

    /// The version `number`.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The version as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| "a version is a whole number, 0 for never written".to_owned())
    }
}

/// A register as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value; `None` if the register was never written, was deleted, or has expired.
    pub value: Option<Bytes>,
    /// The version to write against.
    pub version: Version,
    /// The order that the last write with [`Condition::newer`] carried.
    pub stamp: Option<u64>,
    /// The tokens it has seen. Deleting keeps them.
    pub fence: Fence,
    /// When the value goes away by itself.
    pub expires_in: Option<Duration>,
}

/// Under which condition a register may be written or deleted. All parts must hold.
///
/// ```
/// use palisade_core::{Condition, Version};
/// let create = Condition::always().absent();
/// let swap = Condition::always().version(Version::new(3));
/// # let _ = (create, swap);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Condition {
    /// There must be no value.
    pub absent: bool,
    /// The version must be this one.
    pub version: Option<Version>,
    /// The token must pass the fence, which is then raised to it.
    pub token: Option<FencingToken>,
    /// One write per token.
    pub strict: bool,
    /// The order of this write, which must exceed the stored one.
    pub stamp: Option<u64>,
}

impl Condition {
    /// No condition.
    pub fn always() -> Self {
        Self::default()
    }

    /// Only if there is no value.
    #[must_use]
    pub fn absent(mut self) -> Self {
        self.absent = true;
        self
    }

    /// Only if the version is still this one.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    /// Only if no later grant has been here.
    #[must_use]
    pub fn token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Only if neither this token nor a later one has written before.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Only if `stamp` is greater than the one stored; it is stored with the write.
    #[must_use]
    pub fn newer(mut self, stamp: u64) -> Self {
        self.stamp = Some(stamp);
        self
    }
}

/// A reading that also raises the fence, so that no older holder can write afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raise {
    /// Raise it to this.
    pub token: FencingToken,
    /// Start the fence anew from the token's source instead of comparing: for operators, after
    /// moving from one engine to another.
    pub rebase: bool,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The register as it is now.
    Fresh(Entry),
    /// The fence could not be raised, because a later grant has been here.
    Refused(Refusal),
}

/// What became of a write or a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It is in force, as this version.
    Done(Version),
    /// It had no effect.
    Refused(Refusal),
}

/// Why nothing was written, and what is there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which part of the condition failed.
    pub reason: RefusalReason,
    /// What is there.
    pub current: Entry,
}

/// Which part of a [`Condition`] failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// There is a value already.
    Exists,
    /// The version is another one.
    OtherVersion,
    /// A later grant has been here.
    StaleToken {
        /// Its token.
        current: Token,
    },
    /// Strict mode: this token has written already.
    SpentToken {
        /// The token that wrote last.
        current: Token,
    },
    /// The stored order is not smaller.
    NotNewer {
        /// The stored order.
        current: u64,
    },
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists => f.write_str("there is a value already"),
            Self::OtherVersion => f.write_str("the version is another one"),
            Self::StaleToken { current } => write!(f, "the token is stale, {current} counts now"),
            Self::SpentToken { current } => write!(f, "token {current} has written already"),
            Self::NotNewer { current } => write!(f, "it is not newer than {current}"),
        }
    }
}

/// A register as an engine stores it, with the rules of writing: the part that is the same on
/// every engine that can decide under a lock of its own.
///
/// `expires` is on whatever clock the engine keeps; the caller says what `now` is on the same one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredRegister {
    /// The value; `None` is a tombstone, which keeps version, stamp and fence.
    pub value: Option<Bytes>,
    /// The version of the last write or delete.
    pub version: u64,
    /// See [`Entry::stamp`].
    pub stamp: Option<u64>,
    /// See [`Entry::fence`].
    pub fence: Fence,
    /// When the value goes away, in the engine's nanoseconds.
    pub expires: Option<u64>,
}

impl StoredRegister {
    /// The register as a reader sees it at `now`.
    ///
    /// An expired value counts as deleted, with a version of its own: a writer who read the value
    /// before it expired must not overwrite what came after.
    pub fn entry(&self, now: u64) -> Entry {
        let expired = self.expires.is_some_and(|at| at <= now);
        Entry {
            value: self.value.clone().filter(|_| !expired),
            version: if expired { Version(self.version).next() } else { Version(self.version) },
            stamp: self.stamp,
            fence: self.fence.clone(),
            expires_in: self.expires.filter(|_| !expired).map(|at| Duration::from_nanos(at - now)),
        }
    }

    /// Raises the fence, or says why not. Changes `self` only on success.
    ///
    /// # Errors
    /// [`ErrorKind::SourceMismatch`] unless [`Raise::rebase`] is set.
    pub fn raise(&mut self, now: u64, raise: &Raise) -> Result<Reading> {
        if raise.rebase {
            self.fence.rebase(&raise.token);
        } else if let Some(reason) = fence_refusal(&self.fence, &raise.token, false)? {
            return Ok(Reading::Refused(Refusal { reason, current: self.entry(now) }));
        } else {
            self.fence.raise(&raise.token);
        }
        Ok(Reading::Fresh(self.entry(now)))
    }

    /// Writes `value` (`None` deletes) under `condition`. Changes `self` only on success.
    ///
    /// # Errors
    /// [`ErrorKind::SourceMismatch`] if the fence follows another source, [`ErrorKind::Invalid`]
    /// if the value is too long.
    pub fn write(
        &mut self,
        now: u64,
        value: Option<Bytes>,
        condition: &Condition,
        expires: Option<u64>,
    ) -> Result<Written> {
        if value.as_ref().is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a value has at most {MAX_VALUE_BYTES} bytes"),
            ));
        }
        let current = self.entry(now);
        if let Some(reason) = refusal(&current, condition)? {
            return Ok(Written::Refused(Refusal { reason, current }));
        }
        if let Some(token) = &condition.token {
            self.fence.record_write(token);
        }
        // Deleting what is not there changes nothing, and must not move the version under a
        // writer who read "absent".
        if value.is_none() && current.value.is_none() {
            return Ok(Written::Done(current.version));
        }
        let version = current.version.next();
        self.version = version.get();
        self.value = value;
        self.expires = expires;
        self.stamp = condition.stamp.or(self.stamp);
        Ok(Written::Done(version))
    }
}

fn refusal(current: &Entry, condition: &Condition) -> Result<Option<RefusalReason>> {
    if let Some(token) = &condition.token
        && let Some(reason) = fence_refusal(&current.fence, token, condition.strict)?
    {
        return Ok(Some(reason));
    }
    if condition.absent && current.value.is_some() {
        return Ok(Some(RefusalReason::Exists));
    }
    if condition.version.is_some_and(|version| version != current.version) {
        return Ok(Some(RefusalReason::OtherVersion));
    }
    match (condition.stamp, current.stamp) {
        (Some(new), Some(current)) if new <= current => Ok(Some(RefusalReason::NotNewer { current })),
        _ => Ok(None),
    }
}

fn fence_refusal(fence: &Fence, token: &FencingToken, strict: bool) -> Result<Option<RefusalReason>> {
    match fence.check(token, strict) {
        Ok(()) => Ok(None),
        Err(FenceRefusal::Stale { current }) => Ok(Some(RefusalReason::StaleToken { current })),
        Err(FenceRefusal::Spent { current }) => Ok(Some(RefusalReason::SpentToken { current })),
        Err(FenceRefusal::OtherSource { current }) => Err(Error::new(
            ErrorKind::SourceMismatch,
            format!(
                "this fence follows tokens of {current}, the token comes from {}; the two do not compare until the fence is rebased",
                token.source
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, TokenKind};

    #[allow(clippy::unnecessary_wraps, reason = "a write takes a value or a delete")]
    fn value(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    fn token(number: u64) -> FencingToken {
        FencingToken {
            token: Token::new(number).unwrap(),
            kind: TokenKind::Exclusive,
            slot: None,
            source: Source::new("test"),
        }
    }

    #[test]
    fn versions_never_come_back_not_even_after_delete_and_expiry() {
        let mut register = StoredRegister::default();
        assert_eq!(
            register.write(0, value("a"), &Condition::always().absent(), None).unwrap(),
            Written::Done(Version(1))
        );
        register.write(0, None, &Condition::always(), None).unwrap();
        assert_eq!(register.entry(0).version, Version(2));
        register.write(0, value("b"), &Condition::always(), Some(10)).unwrap();
        assert_eq!(register.entry(9).version, Version(3));
        let expired = register.entry(10);
        assert_eq!((expired.value, expired.version), (None, Version(4)));
        let stale = Condition::always().version(Version(3));
        assert!(matches!(register.write(10, value("c"), &stale, None).unwrap(), Written::Refused(_)));
        assert_eq!(
            register.write(10, value("c"), &Condition::always(), None).unwrap(),
            Written::Done(Version(5))
        );
    }

    #[test]
    fn opening_raises_the_fence_and_a_delete_keeps_it() {
        let mut register = StoredRegister::default();
        register.raise(0, &Raise { token: token(34), rebase: false }).unwrap();
        let zombie = Condition::always().token(token(33));
        let Written::Refused(refusal) = register.write(0, value("late"), &zombie, None).unwrap() else {
            panic!()
        };
        assert_eq!(refusal.reason, RefusalReason::StaleToken { current: Token::new(34).unwrap() });
        register.write(0, value("x"), &Condition::always().token(token(34)), None).unwrap();
        register.write(0, None, &Condition::always().token(token(34)), None).unwrap();
        assert!(matches!(register.write(0, value("late"), &zombie, None).unwrap(), Written::Refused(_)));
    }

    #[test]
    fn only_newer_stamps_are_written() {
        let mut register = StoredRegister::default();
        register.write(0, value("2"), &Condition::always().newer(2), None).unwrap();
        let Written::Refused(refusal) =
            register.write(0, value("2"), &Condition::always().newer(2), None).unwrap()
        else {
            panic!()
        };
        assert_eq!(refusal.reason, RefusalReason::NotNewer { current: 2 });
        assert!(matches!(
            register.write(0, value("3"), &Condition::always().newer(3), None).unwrap(),
            Written::Done(_)
        ));
    }

    #[test]
    fn a_refused_write_changes_nothing() {
        let mut register = StoredRegister::default();
        register.write(0, value("a"), &Condition::always().token(token(5)), None).unwrap();
        let before = register.clone();
        let condition = Condition::always().token(token(9)).version(Version(7));
        assert!(matches!(register.write(0, value("b"), &condition, None).unwrap(), Written::Refused(_)));
        assert_eq!(register, before);
    }
}
