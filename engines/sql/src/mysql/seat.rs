use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use mysql_async::{Row, Value};
use palisade_core::{BootInstant, Clock, Error, ErrorKind, Result, Source, SystemClock};

use super::arrival::{check_server, number};
use super::dial::dial_for_locks;
use super::error::failed;
use super::named::{Named, shared};
use super::server::text;
use super::{MySqlConfig, ROWS};
use crate::advisory::mark_of;
use crate::engine::Inner;
use crate::error::unexpected;
use crate::server::Facts;

/// One connection that holds locks of `GET_LOCK`: they end with it.
///
/// A lock that one session takes twice it has twice, so that nobody may ask for a key over a seat that has it, and no
/// statement that takes one is sent again.
pub(crate) struct Seat {
    named: Named,
    /// How the names of locks begin.
    locks: String,
    /// Whether this user may draw tokens itself, which is faster than to have it done.
    draws: bool,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Seat {
    /// For how long the server is told to wait: whoever waits bounds it.
    const FOR_EVER: i64 = 365 * 24 * 3600;

    /// Makes a connection called `name`, which the server ends once it is silent for `idle`.
    pub(crate) async fn sit(
        config: &MySqlConfig,
        name: String,
        idle: Duration,
        desk: Weak<Inner>,
    ) -> Result<(Self, Facts)> {
        let line = dial_for_locks(config, &settings(idle)).await?;
        let (syncs, uptime) = check_server(&line).await?;
        // A name of ours needs no quoting.
        let rows = line.text(format!("CALL palisade_sit('{name}')")).await?.map_err(failed)?;
        // Counted from the answer: rather too late than too early. A session is not older than its server.
        let up = Duration::from_secs(uptime.try_into().unwrap_or(0));
        let forgot_at = SystemClock.now().saturating_sub(up);
        let told = rows.first().ok_or_else(unexpected)?;
        let (id, origin) = number(told, 1).zip(text(told, 2)).ok_or_else(unexpected)?;
        if number(told, 0) != Some(1) || id != line.id() {
            return Err(shared(ROWS));
        }
        let draws = line.text("SELECT NEXTVAL(palisade_number)").await?.is_ok();
        let locks = format!("palisade.{}.", mark_of(&origin));
        let facts = Facts { source: Source::new(origin), syncs, forgot_at };
        let named = Named::new(line, name, config.call_timeout, desk);
        Ok((Self { named, locks, draws }, facts))
    }

    pub(crate) fn name(&self) -> &str {
        &self.named.name
    }

    pub(crate) fn pid(&self) -> i64 {
        self.named.line.id()
    }

    /// Has the server end the session once it is silent for so long.
    pub(crate) async fn end_when_idle(&self, idle: Duration) -> Result<()> {
        let set = format!("SET {}", settings(idle));
        self.named.bounded(async { self.named.line.text(set).await?.map(drop).map_err(failed) }).await
    }

    /// Takes a lock if it is free; its token.
    pub(crate) async fn attempt(&self, key: i64) -> Result<Option<i64>> {
        // The token is drawn once the lock is held, not before: IF looks at its condition first.
        const DRAW: &str = "SELECT IF(GET_LOCK(?, 0) = 1, NEXTVAL(palisade_number), NULL)";
        let row = if self.draws {
            self.named.bounded(self.named.one(DRAW, vec![self.lock(key)])).await?
        } else {
            self.named.bounded(self.take(key, 0)).await?
        };
        Ok(number(&row, 0))
    }

    /// Waits for a lock, without a bound; its token.
    pub(crate) async fn wait(&self, key: i64) -> Result<i64> {
        let row = self.take(key, Self::FOR_EVER).await?;
        number(&row, 0).ok_or_else(|| {
            Error::new(ErrorKind::Timeout, "the server was told to stop waiting for a lock")
                .with_unknown_effect()
        })
    }

    /// Gives a lock back. Returns whether it was held.
    pub(crate) async fn leave(&self, key: i64) -> Result<bool> {
        let row = self.named.one("SELECT RELEASE_LOCK(?)", vec![self.lock(key)]).await?;
        Ok(number(&row, 0) == Some(1))
    }

    /// Shows the server that this client lives, and that the session is the one that has its locks. Says when that was
    /// sent.
    pub(crate) async fn beat(&self) -> Result<BootInstant> {
        const SAME: &str = "SELECT IS_USED_LOCK(?) = CONNECTION_ID()";
        let (rows, sent) = self.named.bounded(self.named.line.once(SAME, vec![self.name().into()])).await?;
        if rows.first().and_then(|row| number(row, 0)) == Some(1) {
            return Ok(sent);
        }
        self.end();
        Err(shared(ROWS))
    }

    /// A token above `floor` for a lock that is held.
    pub(crate) async fn token_above(&self, key: i64, floor: u64) -> Result<i64> {
        let floor = i64::try_from(floor).unwrap_or(i64::MAX);
        let bound = vec![key.into(), floor.into()];
        let row = self.named.bounded(self.named.one("CALL palisade_session_token(?, ?)", bound)).await?;
        number(&row, 0).ok_or_else(unexpected)
    }

    pub(crate) async fn cancel(&self) -> Result<()> {
        self.named.cancel().await
    }

    /// How many statements wait for an answer.
    pub(crate) fn calls(&self) -> usize {
        self.named.line.calls()
    }

    /// For how long nothing was heard of the server.
    pub(crate) fn silent(&self) -> Duration {
        self.named.line.silent()
    }

    pub(crate) fn end(&self) {
        self.named.end();
    }

    pub(crate) async fn stopped(&self) {
        self.named.stopped().await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.named.line.has_ended()
    }

    pub(crate) async fn ended(&self) {
        self.named.line.ended().await;
    }

    /// A name of at most 64 characters, without letters that differ in case only: MySQL has no others.
    fn lock(&self, key: i64) -> Value {
        format!("{}{key:016x}", self.locks).into()
    }

    async fn take(&self, key: i64, seconds: i64) -> Result<Row> {
        let bound = vec![self.lock(key), key.into(), seconds.into()];
        self.named.one("CALL palisade_take(?, ?, ?)", bound).await
    }
}

/// What a session is set to: it ends after a silence of whole seconds, rather too late than too early.
fn settings(idle: Duration) -> String {
    let seconds = idle.as_millis().div_ceil(1000).max(1);
    format!("SESSION wait_timeout = {seconds}")
}
