use std::time::Duration;

use palisade_core::{
    Condition, Entry, Error, ErrorKind, Fence, FencingToken, Raise, Reading, Refusal, RefusalReason, Result,
    Source, Token, TokenKind, Version, Written,
};
use serde::{Deserialize, Serialize};

use super::Hex;
use super::claims::nanos;

/// A [`FencingToken`].
#[derive(Debug, Serialize, Deserialize)]
struct Fencing {
    token: u64,
    shared: bool,
    slot: Option<u32>,
    source: String,
}

impl From<&FencingToken> for Fencing {
    fn from(token: &FencingToken) -> Self {
        Self {
            token: token.token.get(),
            shared: token.kind == TokenKind::Shared,
            slot: token.slot,
            source: token.source.to_string(),
        }
    }
}

impl TryFrom<Fencing> for FencingToken {
    type Error = Error;

    fn try_from(fencing: Fencing) -> Result<Self> {
        Ok(Self {
            token: token(fencing.token)?,
            kind: if fencing.shared { TokenKind::Shared } else { TokenKind::Exclusive },
            slot: fencing.slot,
            source: Source::new(fencing.source),
        })
    }
}

fn token(number: u64) -> Result<Token> {
    Token::new(number).ok_or_else(|| Error::new(ErrorKind::Invalid, "a token is out of range"))
}

/// A [`Raise`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Raising {
    token: Fencing,
    rebase: bool,
}

impl From<&Raise> for Raising {
    fn from(raise: &Raise) -> Self {
        Self { token: (&raise.token).into(), rebase: raise.rebase }
    }
}

impl TryFrom<Raising> for Raise {
    type Error = Error;

    fn try_from(raising: Raising) -> Result<Self> {
        Ok(Self { token: raising.token.try_into()?, rebase: raising.rebase })
    }
}

/// A [`Condition`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Conditions {
    absent: bool,
    version: Option<u64>,
    token: Option<Fencing>,
    strict: bool,
    stamp: Option<u64>,
}

impl From<&Condition> for Conditions {
    fn from(condition: &Condition) -> Self {
        Self {
            absent: condition.absent,
            version: condition.version.map(Version::get),
            token: condition.token.as_ref().map(Fencing::from),
            strict: condition.strict,
            stamp: condition.stamp,
        }
    }
}

impl TryFrom<Conditions> for Condition {
    type Error = Error;

    fn try_from(conditions: Conditions) -> Result<Self> {
        let mut condition = Self::always();
        condition.absent = conditions.absent;
        condition.version = conditions.version.map(Version::new);
        condition.token = conditions.token.map(FencingToken::try_from).transpose()?;
        condition.strict = conditions.strict;
        condition.stamp = conditions.stamp;
        Ok(condition)
    }
}

/// An [`Entry`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Stored {
    value: Option<Hex>,
    version: u64,
    stamp: Option<u64>,
    fence: Vec<(Option<u32>, String, [u64; 3])>,
    expires_in: Option<u64>,
}

impl From<&Entry> for Stored {
    fn from(entry: &Entry) -> Self {
        let cells = entry.fence.to_cells();
        Self {
            value: entry.value.clone().map(Hex),
            version: entry.version.get(),
            stamp: entry.stamp,
            fence: cells.map(|(slot, source, marks)| (slot, source.to_string(), marks)).collect(),
            expires_in: entry.expires_in.map(nanos),
        }
    }
}

impl From<Stored> for Entry {
    fn from(stored: Stored) -> Self {
        let cells = stored.fence.into_iter();
        Self {
            value: stored.value.map(|Hex(value)| value),
            version: Version::new(stored.version),
            stamp: stored.stamp,
            fence: Fence::from_cells(cells.map(|(slot, source, marks)| (slot, Source::new(source), marks))),
            expires_in: stored.expires_in.map(Duration::from_nanos),
        }
    }
}

/// A [`Refusal`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Refused {
    reason: Reason,
    current: Stored,
}

#[derive(Debug, Serialize, Deserialize)]
enum Reason {
    Exists,
    OtherVersion,
    StaleToken(u64),
    SpentToken(u64),
    NotNewer(u64),
}

impl TryFrom<&Refusal> for Refused {
    type Error = Error;

    fn try_from(refusal: &Refusal) -> Result<Self> {
        let reason = match &refusal.reason {
            RefusalReason::Exists => Reason::Exists,
            RefusalReason::OtherVersion => Reason::OtherVersion,
            RefusalReason::StaleToken { current } => Reason::StaleToken(current.get()),
            RefusalReason::SpentToken { current } => Reason::SpentToken(current.get()),
            RefusalReason::NotNewer { current } => Reason::NotNewer(*current),
            other => return Err(Error::new(ErrorKind::Internal, format!("no words for {other:?}"))),
        };
        Ok(Self { reason, current: (&refusal.current).into() })
    }
}

impl TryFrom<Refused> for Refusal {
    type Error = Error;

    fn try_from(refused: Refused) -> Result<Self> {
        let reason = match refused.reason {
            Reason::Exists => RefusalReason::Exists,
            Reason::OtherVersion => RefusalReason::OtherVersion,
            Reason::StaleToken(current) => RefusalReason::StaleToken { current: token(current)? },
            Reason::SpentToken(current) => RefusalReason::SpentToken { current: token(current)? },
            Reason::NotNewer(current) => RefusalReason::NotNewer { current },
        };
        Ok(Self { reason, current: refused.current.into() })
    }
}

/// A [`Reading`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum HowRead {
    Fresh(Stored),
    Refused(Refused),
}

impl TryFrom<&Reading> for HowRead {
    type Error = Error;

    fn try_from(reading: &Reading) -> Result<Self> {
        Ok(match reading {
            Reading::Fresh(entry) => Self::Fresh(entry.into()),
            Reading::Refused(refusal) => Self::Refused(refusal.try_into()?),
        })
    }
}

impl TryFrom<HowRead> for Reading {
    type Error = Error;

    fn try_from(read: HowRead) -> Result<Self> {
        Ok(match read {
            HowRead::Fresh(stored) => Self::Fresh(stored.into()),
            HowRead::Refused(refused) => Self::Refused(refused.try_into()?),
        })
    }
}

/// A [`Written`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum HowWritten {
    Done(u64),
    Refused(Refused),
}

impl TryFrom<&Written> for HowWritten {
    type Error = Error;

    fn try_from(written: &Written) -> Result<Self> {
        Ok(match written {
            Written::Done(version) => Self::Done(version.get()),
            Written::Refused(refusal) => Self::Refused(refusal.try_into()?),
        })
    }
}

impl TryFrom<HowWritten> for Written {
    type Error = Error;

    fn try_from(written: HowWritten) -> Result<Self> {
        Ok(match written {
            HowWritten::Done(version) => Self::Done(Version::new(version)),
            HowWritten::Refused(refused) => Self::Refused(refused.try_into()?),
        })
    }
}
