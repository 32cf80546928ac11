use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use palisade_core::{Clock, Fence, Source, StoredRegister, SystemClock};
use rusqlite::Row;
use uuid::Uuid;

use crate::rows::unsigned;

/// The present on both clocks, in nanoseconds.
pub(crate) struct Moment {
    pub(crate) boot: u64,
    pub(crate) wall: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        Self { boot: SystemClock.now().as_nanos(), wall }
    }
}

/// A register, from the columns value, version, stamp, fence and the three of its expiry.
pub(crate) fn decode(row: &Row<'_>, boot: Uuid, now: &Moment) -> rusqlite::Result<StoredRegister> {
    let written_in: Option<[u8; 16]> = row.get(4)?;
    let expires = match written_in {
        None => None,
        Some(same) if same == *boot.as_bytes() => Some(unsigned(row, 5)?),
        // The boot clock began anew since.
        Some(_) => Some(now.boot.saturating_add(unsigned(row, 6)?.saturating_sub(now.wall))),
    };
    Ok(StoredRegister {
        value: row.get::<_, Option<Vec<u8>>>(0)?.map(Bytes::from),
        version: unsigned(row, 1)?,
        stamp: row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned),
        fence: decode_fence(row.get_ref(3)?.as_str()?)?,
        expires,
    })
}

pub(crate) fn encode_fence(fence: &Fence) -> String {
    let cells: Vec<_> =
        fence.to_cells().map(|(slot, source, marks)| (slot, source.as_str(), marks)).collect();
    serde_json::to_string(&cells).unwrap_or_default()
}

fn decode_fence(text: &str) -> rusqlite::Result<Fence> {
    let cells: Vec<(Option<u32>, String, [u64; 3])> = serde_json::from_str(text)
        .map_err(|problem| rusqlite::types::FromSqlError::Other(Box::new(problem)))?;
    Ok(Fence::from_cells(cells.into_iter().map(|(slot, source, marks)| (slot, Source::new(source), marks))))
}
