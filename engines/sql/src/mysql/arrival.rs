use std::time::Duration;

use mysql_async::Row;
use palisade_core::{Clock, Error, ErrorKind, Result, Source, SystemClock};

use super::MySqlConfig;
use super::error::failed;
use super::line::Line;
use super::schema::{self, VERSION, check_version};
use crate::error::unexpected;
use crate::server::Facts;

/// Asks a server who it is, makes our schema there if it must, and checks that it can be trusted with locks.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a server that is too old, or has a newer schema; [`ErrorKind::Unavailable`] for a
/// replica; [`ErrorKind::Denied`] for a user who may not do what is needed.
pub(crate) async fn arrive(config: &MySqlConfig, line: &Line) -> Result<Facts> {
    let (syncs, uptime) = check_server(line).await?;
    let (version, facts) = match hello(config, line, syncs, uptime).await? {
        Some(known) if usize::try_from(known.0).is_ok_and(|found| found >= VERSION) => known,
        _ => {
            schema::make(config, line).await?;
            hello(config, line, syncs, uptime).await?.ok_or_else(|| {
                let message = format!("the schema in {:?} was made, but cannot be used", config.database);
                Error::new(ErrorKind::Corrupt, message)
            })?
        }
    };
    check_version(&config.database, version)?;
    Ok(facts)
}

/// Refuses servers that cannot be trusted with locks; says whether it syncs, and for how many seconds it has run.
pub(super) async fn check_server(line: &Line) -> Result<(bool, i64)> {
    let rows = line
        .text("SELECT VERSION(), @@global.read_only, @@innodb_flush_log_at_trx_commit")
        .await?
        .map_err(failed)?;
    let row = rows.first().ok_or_else(unexpected)?;
    let version: String = row.get(0).ok_or_else(unexpected)?;
    check_version_of(&version)?;
    // A number, or a word, as the server has it.
    let read_only = row.get::<String, _>(1).is_none_or(|said| !matches!(said.as_str(), "0" | "OFF"));
    if read_only {
        let message = "the server is a replica, or read-only, and decides nothing; name the primary";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    let up = line.text("SHOW GLOBAL STATUS LIKE 'Uptime'").await?.map_err(failed)?;
    let uptime = up.first().and_then(|row| number(row, 1)).unwrap_or(0);
    Ok((number(row, 2) == Some(1), uptime))
}

/// MariaDB from 10.6 on, MySQL from 8 on: older ones have no `JSON_TABLE`.
fn check_version_of(version: &str) -> Result<()> {
    let mut parts = version.split(|part: char| !part.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let found: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let oldest = if version.contains("MariaDB") { (10, 6) } else { (8, 0) };
    if found >= oldest {
        return Ok(());
    }
    let message = format!("the server is {version}; MySQL 8 or MariaDB 10.6, or a newer one, is needed");
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// The schema's version, and who it says it is; `None` if there is no schema.
async fn hello(config: &MySqlConfig, line: &Line, syncs: bool, uptime: i64) -> Result<Option<(i64, Facts)>> {
    /// There is no such procedure, or table, here.
    const MISSING: [u16; 2] = [1305, 1146];
    let rows = match line.text(format!("CALL palisade_hello({uptime})")).await? {
        Ok(rows) => rows,
        Err(mysql_async::Error::Server(said)) if MISSING.contains(&said.code) => return Ok(None),
        // Who may nothing is not told whether it is there.
        Err(error) => {
            let error = failed(error);
            if error.kind() != ErrorKind::Denied {
                return Err(error);
            }
            let message = format!(
                "this user may not use the schema, or there is none: {}; have it made (`palisade schema mysql`), and grant it: GRANT EXECUTE ON `{}`.* TO …",
                error.message(),
                config.database
            );
            return Err(Error::new(ErrorKind::Denied, message));
        }
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let origin: String = row.get(1).ok_or_else(unexpected)?;
    let (version, remembers) = number(row, 0).zip(number(row, 2)).ok_or_else(unexpected)?;
    // Counted from the answer: rather too late than too early.
    let remembers = Duration::from_micros(remembers.try_into().unwrap_or(0));
    let forgot_at = SystemClock.now().saturating_sub(remembers);
    Ok(Some((version, Facts { source: Source::new(origin), syncs, forgot_at })))
}

/// A number of a row; servers say some of them as texts.
pub(super) fn number(row: &Row, at: usize) -> Option<i64> {
    match row.as_ref(at)? {
        mysql_async::Value::Int(number) => Some(*number),
        mysql_async::Value::UInt(number) => i64::try_from(*number).ok(),
        mysql_async::Value::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused() {
        for good in ["10.11.19-MariaDB-0+deb12u1", "11.4.2-MariaDB", "8.0.36", "9.7.4", "8.4.0-debug"] {
            check_version_of(good).unwrap();
        }
        for old in ["10.5.9-MariaDB", "5.7.44", "5.5.5-MariaDB"] {
            assert_eq!(check_version_of(old).unwrap_err().kind(), ErrorKind::Unsupported, "{old}");
        }
    }
}
