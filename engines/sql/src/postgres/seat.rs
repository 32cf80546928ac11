use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Clock, Error, ErrorKind, Result, Source, SystemClock, within};
use tokio_postgres::{Row, Statement};

use super::error::{ends_the_line, failed};
use super::line::{Bound, Line};
use super::schema::{literal, quoted};
use super::together::Together;
use super::{PostgresConfig, dial};
use crate::error::unexpected;
use crate::server::Facts;

/// One connection that holds session locks: they end with it.
///
/// A lock that one session takes twice it has twice, so that nobody may ask for a key over a seat that has it.
pub(crate) struct Seat {
    line: Line,
    config: Arc<PostgresConfig>,
    /// What the server calls it; nobody else is called so.
    name: String,
    pid: i32,
    pub(super) statements: Statements,
    pub(super) together: Together,
    /// Whether the server ends sessions that are silent for too long.
    knows_idle: bool,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Which locks are meant: those of writers, or those of readers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Exclusive,
    Shared,
}

impl Kind {
    pub(super) fn of(shared: bool) -> Self {
        if shared { Self::Shared } else { Self::Exclusive }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Exclusive => "",
            Self::Shared => "_shared",
        }
    }
}

/// The statements that the server keeps for a connection; each first for writers, then for readers.
pub(super) struct Statements {
    pub(super) attempt: [Statement; 2],
    pub(super) attempt_each: [Statement; 2],
    wait: [Statement; 2],
    pub(super) leave: [Statement; 2],
    pub(super) leave_each: [Statement; 2],
    downgrade: Statement,
    beat: Statement,
}

impl Statements {
    async fn prepare(line: &Line, schema: &str) -> Result<Self> {
        let prepare = async |sql: String| line.client().prepare(&sql).await.map_err(failed);
        let number =
            format!("pg_catalog.nextval({}::pg_catalog.regclass)", literal(&format!("{schema}.number")));
        // The token is drawn once the lock is held, not before: CASE looks at its condition first.
        let attempt = |kind: Kind| {
            prepare(format!(
                "SELECT CASE WHEN pg_catalog.pg_try_advisory_lock{}($1) THEN {number} END",
                kind.suffix()
            ))
        };
        // Each key is told with its answer: rows have no order of their own.
        let each = |of_key: &str| {
            prepare(format!(
                "SELECT key, {of_key} FROM pg_catalog.unnest($1::pg_catalog.int8[]) AS asked (key)"
            ))
        };
        let attempt_each = |kind: Kind| {
            let taken = format!("pg_catalog.pg_try_advisory_lock{}(key)", kind.suffix());
            each(&format!("CASE WHEN {taken} THEN {number} END"))
        };
        let leave_each = |kind: Kind| each(&format!("pg_catalog.pg_advisory_unlock{}(key)", kind.suffix()));
        let wait = |kind: Kind| {
            prepare(format!(
                "SELECT CASE WHEN pg_catalog.pg_advisory_lock{}($1) IS NOT NULL THEN {number} END",
                kind.suffix()
            ))
        };
        let leave =
            |kind: Kind| prepare(format!("SELECT pg_catalog.pg_advisory_unlock{}($1)", kind.suffix()));
        let downgrade = "SELECT pg_catalog.pg_advisory_unlock($1) FROM (SELECT pg_catalog.pg_advisory_lock_shared($1) OFFSET 0) AS held";
        let (x, s) = (Kind::Exclusive, Kind::Shared);
        let made = futures::try_join!(
            attempt(x),
            attempt(s),
            wait(x),
            wait(s),
            leave(x),
            leave(s),
            prepare(downgrade.to_owned()),
            prepare("SELECT pg_catalog.pg_backend_pid()".to_owned()),
            attempt_each(x),
            attempt_each(s),
            leave_each(x),
            leave_each(s),
        )?;
        Ok(Self {
            attempt: [made.0, made.1],
            attempt_each: [made.8, made.9],
            wait: [made.2, made.3],
            leave: [made.4, made.5],
            leave_each: [made.10, made.11],
            downgrade: made.6,
            beat: made.7,
        })
    }
}

impl Seat {
    /// Makes a connection called `name`, which the server ends once it is silent for `idle`; in as few round trips as can
    /// be: somebody is about to wait.
    pub(crate) async fn sit(
        config: &Arc<PostgresConfig>,
        name: String,
        idle: Duration,
    ) -> Result<(Self, Facts)> {
        let line = dial(config, false, Arc::new(|_| {})).await?;
        let schema = quoted(&config.schema);
        let told = line.text(&arrival(&schema, &name, idle)).await.map_err(failed)?;
        // Counted from the answer: rather too late than too early. A session is not older than its server.
        let now = SystemClock.now();
        let told = told.iter().find(|row| row.len() > 1).ok_or_else(unexpected)?;
        let [read_only, fsync, knows_idle, pid, up, source, _token] = told.as_slice() else {
            return Err(unexpected());
        };
        if read_only == "on" {
            let message = "the server is a replica, or read-only, and decides nothing; name the primary";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let up = Duration::from_millis(up.parse().map_err(|_| unexpected())?);
        let (source, forgot_at) = (Source::new(source.clone()), now.saturating_sub(up));
        let facts = Facts { source, syncs: fsync == "on", forgot_at };
        let (statements, noticed) = futures::join!(
            Statements::prepare(&line, &schema),
            // Not on every system, and not before version 14; there, a dead waiter stays in line until its turn.
            line.text("SET client_connection_check_interval = '500ms'")
        );
        if let Err(error) = noticed {
            tracing::debug!(%error, "the server does not look whether who waits still lives");
        }
        let (statements, knows_idle) = (statements?, knows_idle == "t");
        let pid = pid.parse().map_err(|_| unexpected())?;
        Ok((
            Self {
                line,
                config: Arc::clone(config),
                name,
                pid,
                statements,
                together: Together::new(),
                knows_idle,
            },
            facts,
        ))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> i64 {
        i64::from(self.pid)
    }

    /// Has the server end the session once it is silent for so long.
    pub(crate) async fn end_when_idle(&self, idle: Duration) -> Result<()> {
        if !self.knows_idle {
            return Ok(());
        }
        let idle = millis(idle);
        let set = async {
            self.line.text(&format!("SET idle_session_timeout = {idle}")).await.map(drop).map_err(failed)
        };
        self.bounded(set).await
    }

    /// Waits for a lock, without a bound; its token.
    pub(crate) async fn wait(&self, key: i64, shared: bool) -> Result<i64> {
        let row = self.one(&self.statements.wait[Kind::of(shared) as usize], &[&key]).await?;
        row.try_get(0).map_err(|error| unexpected().because(error))
    }

    /// Makes a writer's lock a reader's, without a moment in between.
    pub(crate) async fn downgrade(&self, key: i64) -> Result<bool> {
        let row = self.bounded(self.one(&self.statements.downgrade, &[&key])).await?;
        row.try_get(0).map_err(|error| unexpected().because(error))
    }

    /// Shows the server that this client lives, and that the session is the same. Says when that was sent.
    pub(crate) async fn beat(&self) -> Result<BootInstant> {
        let sent = SystemClock.now();
        let row = self.bounded(self.one(&self.statements.beat, &[])).await?;
        if row.try_get::<_, i32>(0).ok() == Some(self.pid) {
            return Ok(sent);
        }
        self.end();
        let message = "a pooler stands before the server now, and gives sessions to others";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// A token above `floor`.
    pub(crate) async fn token_above(&self, floor: u64) -> Result<i64> {
        let floor = i64::try_from(floor).unwrap_or(i64::MAX);
        let sql = format!("SELECT {}.session_token({floor})", quoted(&self.config.schema));
        let rows = self.bounded(async { self.line.text(&sql).await.map_err(failed) }).await?;
        rows.first().and_then(|row| row.first()?.parse().ok()).ok_or_else(unexpected)
    }

    /// Has the server stop what it does here. Completes once it was told.
    pub(crate) async fn cancel(&self) -> Result<()> {
        super::dial::cancel(&self.config, &self.line).await
    }

    /// How many statements wait for an answer.
    pub(crate) fn calls(&self) -> usize {
        self.line.calls()
    }

    /// For how long nothing was heard of the server.
    pub(crate) fn silent(&self) -> Duration {
        self.line.silent()
    }

    pub(crate) fn end(&self) {
        self.line.end();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.line.has_ended()
    }

    pub(crate) async fn ended(&self) {
        self.line.ended().await;
    }

    pub(super) async fn one(&self, statement: &Statement, bound: &[Bound<'_>]) -> Result<Row> {
        self.heard(self.line.client().query_one(statement, bound)).await
    }

    pub(super) async fn rows(&self, statement: &Statement, bound: &[Bound<'_>]) -> Result<Vec<Row>> {
        self.heard(self.line.client().query(statement, bound)).await
    }

    async fn heard<T>(&self, call: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
        let _counted = self.line.counted();
        match call.await {
            Ok(answer) => {
                self.line.hear();
                Ok(answer)
            }
            Err(error) => {
                if ends_the_line(&error) {
                    self.end();
                }
                Err(failed(error))
            }
        }
    }

    pub(super) async fn bounded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.config.call_timeout;
        within(limit, call).await.unwrap_or_else(|| {
            let message = format!("the server did not answer within {limit:?}");
            Err(Error::new(ErrorKind::Timeout, message).with_unknown_effect())
        })
    }
}

/// Prepares a session, and asks whom it is with. The schema was made, and its version checked, by whoever came before.
///
/// Waits are bounded by whoever waits: a statement that is undone while it takes a session lock leaves the lock. The first
/// token lifts the numbers above those of earlier timelines; there is no other while a connection lasts.
fn arrival(schema: &str, name: &str, idle: Duration) -> String {
    format!(
        "SET application_name = {name}; SET statement_timeout = 0; SET lock_timeout = 0; SET client_min_messages = error; \
         SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply'); \
         SELECT set_config('idle_session_timeout', '{idle}', false) \
         WHERE current_setting('server_version_num')::int >= 140000; \
         SELECT set_config('transaction_timeout', '0', false) \
         WHERE current_setting('server_version_num')::int >= 170000; \
         SELECT current_setting('transaction_read_only'), current_setting('fsync'), \
         current_setting('server_version_num')::int >= 140000, pg_backend_pid(), \
         round(extract(epoch FROM greatest(clock_timestamp() - pg_postmaster_start_time(), interval '0')) * 1000)::bigint, \
         source, \
         {schema}.session_token(0) FROM {schema}.hello()",
        name = literal(name),
        idle = millis(idle),
    )
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1)
}
