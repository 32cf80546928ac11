use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Clock, Error, ErrorKind, Result, Source, SystemClock};
use tokio::sync::Notify;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::error::failed;
use super::line::Line;
use super::schema::{self, VERSION, check_version, quoted};
use super::{OnNews, PostgresConfig, dial};
use crate::server::Facts;

/// Asks a server who it is, makes our schema there if it must, and checks that it can be trusted with locks.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a server that is too old, or has a newer schema; [`ErrorKind::Unavailable`] for a
/// replica; [`ErrorKind::Denied`] for a user who may not do what is needed.
pub(crate) async fn arrive(config: &PostgresConfig, line: &Line) -> Result<Facts> {
    let syncs = check_server(line).await?;
    let (version, facts) = match hello(config, line, syncs).await? {
        Some(known) if usize::try_from(known.0).is_ok_and(|found| found >= VERSION) => known,
        _ => {
            schema::make(line, &config.schema).await?;
            hello(config, line, syncs).await?.ok_or_else(|| {
                let message = format!("the schema {:?} was made, but cannot be used", config.schema);
                Error::new(ErrorKind::Corrupt, message)
            })?
        }
    };
    check_version(&config.schema, version)?;
    Ok(facts)
}

/// Refuses servers that cannot be trusted with locks; says whether it syncs.
async fn check_server(line: &Line) -> Result<bool> {
    const OLDEST: u32 = 130_000;
    let rows = line
        .text("SELECT current_setting('server_version_num'), current_setting('server_encoding'), pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('fsync'), pg_backend_pid()")
        .await
        .map_err(failed)?;
    let [version, encoding, replica, read_only, fsync, pid] = rows.first().map_or(&[][..], Vec::as_slice)
    else {
        return Err(crate::error::unexpected());
    };
    if let Ok(pid) = pid.parse() {
        line.served_by(pid);
    }
    let refused = |kind, message: String| Err(Error::new(kind, message));
    if version.parse().is_ok_and(|version: u32| version < OLDEST) {
        return refused(
            ErrorKind::Unsupported,
            format!("the server is PostgreSQL {version}; 13 or newer is needed"),
        );
    }
    if encoding != "UTF8" {
        return refused(
            ErrorKind::Unsupported,
            format!("the database is encoded as {encoding}; names of locks need UTF8"),
        );
    }
    if replica == "t" || read_only == "on" {
        let message = "the server is a replica, or read-only, and decides nothing; name the primary";
        return refused(ErrorKind::Unavailable, message.to_owned());
    }
    Ok(fsync == "on")
}

/// The schema's version, and who it says it is; `None` if there is no schema.
async fn hello(config: &PostgresConfig, line: &Line, syncs: bool) -> Result<Option<(i64, Facts)>> {
    let schema = quoted(&config.schema);
    let rows = match line.text(&format!("SELECT version, source, remembers FROM {schema}.hello()")).await {
        Ok(rows) => rows,
        Err(error) => {
            let missing = [SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_FUNCTION];
            if error.code().is_some_and(|code| missing.contains(code)) {
                return Ok(None);
            }
            let error = failed(error);
            if error.kind() != ErrorKind::Denied {
                return Err(error);
            }
            let message = format!(
                "this user may not use the schema: {}; grant it: GRANT USAGE ON SCHEMA {schema} TO …",
                error.message()
            );
            return Err(Error::new(ErrorKind::Denied, message));
        }
    };
    let Some([version, source, remembers]) = rows.first().map(Vec::as_slice) else { return Ok(None) };
    let version = version.parse().map_err(|_| crate::error::unexpected())?;
    let remembers = remembers.parse().map_err(|_| crate::error::unexpected())?;
    // Counted from the answer: rather too late than too early.
    let forgot_at = SystemClock.now().saturating_sub(Duration::from_micros(remembers));
    Ok(Some((version, Facts { source: Source::new(source.clone()), syncs, forgot_at })))
}

/// Whether a pooler of transactions stands between us and the server.
///
/// Two connections of ours that share one of the server's prove it. That they do not proves nothing while others use
/// the pooler; that what is told is heard does: a pooler forgets who listens.
pub(crate) async fn is_pooled(config: &PostgresConfig, line: &Line) -> Result<bool> {
    const PID: &str = "SELECT pg_backend_pid()";
    let heard = Arc::new(Notify::new());
    let channel = format!("palisade_{}", Uuid::new_v4().simple());
    let on_news: OnNews = {
        let (heard, channel) = (Arc::clone(&heard), channel.clone());
        // Through a pooler one may hear what is told to others.
        Arc::new(move |news| {
            if news == channel {
                heard.notify_one();
            }
        })
    };
    let ear = dial(config, false, on_news).await?;
    let before = line.text(PID).await.map_err(failed)?;
    // A transaction keeps the server's side for itself, which the pooler gave to us just now.
    ear.text("BEGIN").await.map_err(failed)?;
    let theirs = ear.text(PID).await.map_err(failed)?;
    let after = line.text(PID).await.map_err(failed)?;
    ear.text("COMMIT").await.map_err(failed)?;
    if before == theirs || before != after {
        return Ok(true);
    }
    ear.listen(&channel).await?;
    line.notify(&channel, &channel).await?;
    Ok(tokio::time::timeout(config.connect_timeout, heard.notified()).await.is_err())
}
