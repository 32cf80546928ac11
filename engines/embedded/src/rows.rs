use std::sync::Arc;

use palisade_core::{BootInstant, ClaimId, ClaimView, Family, Grant, Mode, Owner, Token};
use rusqlite::Row;
use rusqlite::types::{FromSqlError, ValueRef};

use crate::session::SessionId;

/// What decides about a claim, without what is only shown.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) seq: i64,
    pub(crate) id: ClaimId,
    pub(crate) session: SessionId,
    pub(crate) mode: Mode,
    pub(crate) held: bool,
    /// Its token, or while it waits, what its token must exceed.
    pub(crate) token: u64,
    pub(crate) slot: Option<u32>,
    pub(crate) ttl: u64,
    pub(crate) expires: u64,
}

/// The columns of a [`Line`], in its order.
macro_rules! line_columns {
    () => {
        "seq, id, session, mode, slots, state, token, slot, ttl_ns, expires_ns"
    };
}
pub(crate) use line_columns;

impl Line {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            id: claim_id(row, 1)?,
            session: session_id(row, 2)?,
            mode: mode(row.get(3)?, row.get(4)?)?,
            held: row.get::<_, i64>(5)? == 1,
            token: unsigned(row, 6)?,
            slot: row.get(7)?,
            ttl: unsigned(row, 8)?,
            expires: unsigned(row, 9)?,
        })
    }

    /// What its holder is told. `None` while it waits.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let token = Token::new(self.token).filter(|_| self.held)?;
        Some(Grant { token, slot: self.slot, valid_until: BootInstant::from_nanos(self.expires) })
    }
}

/// The columns of a [`ClaimView`], as [`view`] reads them.
macro_rules! view_columns {
    () => {
        "id, family, mode, slots, state, token, slot, since_ns, expires_ns, owner, value"
    };
}
pub(crate) use view_columns;

/// A claim as seen from outside at `now`, from the columns that begin at `at`.
pub(crate) fn view(row: &Row<'_>, at: usize, now: u64) -> rusqlite::Result<ClaimView> {
    let held = row.get::<_, i64>(at + 4)? == 1;
    let ago = |then: u64| std::time::Duration::from_nanos(now.saturating_sub(then));
    let expires = unsigned(row, at + 8)?;
    Ok(ClaimView {
        claim: claim_id(row, at)?,
        family: family(row.get(at + 1)?)?,
        mode: mode(row.get(at + 2)?, row.get(at + 3)?)?,
        slot: row.get(at + 6)?,
        token: Token::new(unsigned(row, at + 5)?).filter(|_| held),
        owner: owner(row, at + 9)?,
        value: row.get::<_, Option<Vec<u8>>>(at + 10)?.map(Into::into),
        age: ago(unsigned(row, at + 7)?),
        expires_in: Some(std::time::Duration::from_nanos(expires.saturating_sub(now))),
    })
}

/// A number as SQLite keeps it. Times and tokens stay far below the limit.
pub(crate) fn sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(at)?;
    u64::try_from(number).map_err(|_| FromSqlError::OutOfRange(number).into())
}

pub(crate) fn claim_id(row: &Row<'_>, at: usize) -> rusqlite::Result<ClaimId> {
    Ok(ClaimId::from_bytes(row.get(at)?))
}

pub(crate) fn session_id(row: &Row<'_>, at: usize) -> rusqlite::Result<SessionId> {
    match row.get_ref(at)? {
        ValueRef::Text(text) => SessionId::parse(text).ok_or_else(|| FromSqlError::InvalidType.into()),
        _ => Err(FromSqlError::InvalidType.into()),
    }
}

fn owner(row: &Row<'_>, at: usize) -> rusqlite::Result<Arc<Owner>> {
    let text = row.get_ref(at)?.as_str()?;
    serde_json::from_str(text).map(Arc::new).map_err(|problem| FromSqlError::Other(Box::new(problem)).into())
}

pub(crate) fn mode_columns(mode: Mode) -> (i64, u32) {
    match mode {
        Mode::Exclusive => (0, 0),
        Mode::Shared => (1, 0),
        Mode::Slot { of } => (2, of),
    }
}

fn mode(mode: i64, of: u32) -> rusqlite::Result<Mode> {
    match mode {
        0 => Ok(Mode::Exclusive),
        1 => Ok(Mode::Shared),
        2 => Ok(Mode::Slot { of }),
        other => Err(FromSqlError::OutOfRange(other).into()),
    }
}

pub(crate) fn family_column(family: Family) -> i64 {
    match family {
        Family::Mutex => 0,
        Family::Rw => 1,
        Family::Permits => 2,
        Family::Election => 3,
    }
}

fn family(number: i64) -> rusqlite::Result<Family> {
    match number {
        0 => Ok(Family::Mutex),
        1 => Ok(Family::Rw),
        2 => Ok(Family::Permits),
        3 => Ok(Family::Election),
        other => Err(FromSqlError::OutOfRange(other).into()),
    }
}
