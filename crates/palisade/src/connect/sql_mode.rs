use palisade_core::Result;

use crate::url::{EngineUrl, invalid};

/// What a claim is at a SQL server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SqlMode {
    /// A row with a TTL.
    Rows,
    /// A lock of a session.
    Advisory,
}

impl SqlMode {
    /// What option `mode` says.
    pub(super) fn take(url: &mut EngineUrl) -> Result<Self> {
        match url.take("mode").as_deref() {
            None | Some("rows") => Ok(Self::Rows),
            Some("advisory") => Ok(Self::Advisory),
            Some(other) => Err(invalid(format!("option mode is `rows` or `advisory`, not {other:?}"))),
        }
    }

    /// How many connections session locks may have, if option `connections` says.
    pub(super) fn connections(url: &mut EngineUrl) -> Result<Option<usize>> {
        let Some(said) = url.take("connections") else { return Ok(None) };
        match said.parse() {
            Ok(connections @ 1..=10_000) => Ok(Some(connections)),
            _ => Err(invalid(format!("option connections is a number up to 10000, not {said:?}"))),
        }
    }
}

/// Where ShedLock keeps its rows, if option `shedlock` says: `table`, or the `outer` that it is in, a dot and `table`, as the
/// database has them.
pub(super) fn shedlock_table(url: &mut EngineUrl, outer: &str, longest: usize) -> Result<Option<String>> {
    let Some(table) = url.take("shedlock") else { return Ok(None) };
    if table.is_empty() {
        return Ok(Some("shedlock".to_owned()));
    }
    let parts: Vec<&str> = table.split('.').collect();
    let fits = |part: &&str| !part.is_empty() && part.len() <= longest && !part.contains('\0');
    if parts.len() > 2 || !parts.iter().all(fits) {
        let message = format!("option shedlock is a table, or {outer}.table, each of 1 to {longest} bytes");
        return Err(invalid(message));
    }
    Ok(Some(table))
}
