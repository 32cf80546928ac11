use std::fmt;
use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Clock, Result, SystemClock};
use tokio::sync::{Mutex, OnceCell, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement};

use super::PostgresConfig;
use super::error::{ends_the_line, failed, is_blocked, is_worth_a_retry};
use super::schema::quoted;
use super::statement::Verb;

/// A value that is bound to a statement.
pub(crate) type Bound<'a> = &'a (dyn ToSql + Sync);

/// What is asked over a connection.
enum Asked<'a> {
    Verb(Verb, &'a [Bound<'a>]),
    Text(&'a str, &'a [(Bound<'a>, Type)]),
}

/// One connection, over which many statements are under way at once. Ends when it is dropped.
pub(crate) struct Line {
    client: Client,
    schema: String,
    /// The statements that the server keeps for this connection; `None` behind a pooler.
    statements: Option<[OnceCell<Statement>; Verb::COUNT]>,
    /// Whose turn it is to ask, behind a pooler.
    turn: Mutex<()>,
    task: AbortHandle,
    /// Closed when the connection has ended.
    life: watch::Receiver<()>,
    calls: AtomicUsize,
    made: Instant,
    /// Milliseconds since it was made at which the server was last heard.
    heard: AtomicU64,
    /// The same for when a first call was sent after all others were answered.
    began: AtomicU64,
    /// The server's process for it; not known behind a pooler, where it is another each time.
    pid: OnceLock<i32>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Line {
    pub(super) fn new(
        client: Client,
        drive: impl Future<Output = ()> + Send + 'static,
        config: &PostgresConfig,
        named: bool,
    ) -> Self {
        let (alive, life) = watch::channel(());
        let task = tokio::spawn(async move {
            drive.await;
            drop(alive);
        });
        Self {
            client,
            schema: quoted(&config.schema),
            statements: named.then(|| std::array::from_fn(|_| OnceCell::new())),
            turn: Mutex::new(()),
            task: task.abort_handle(),
            life,
            calls: AtomicUsize::new(0),
            made: Instant::now(),
            heard: AtomicU64::new(0),
            began: AtomicU64::new(0),
            pid: OnceLock::new(),
        }
    }

    /// Runs a statement, again if the server undid it for no fault of ours. Says when the last try was sent.
    pub(crate) async fn run(&self, verb: Verb, bound: &[Bound<'_>]) -> Result<(Vec<Row>, BootInstant)> {
        self.retried(&Asked::Verb(verb, bound)).await
    }

    /// The same for a statement that is none of our schema's, and that the server does not keep.
    pub(super) async fn run_text(
        &self,
        sql: &str,
        bound: &[(Bound<'_>, Type)],
    ) -> Result<(Vec<Row>, BootInstant)> {
        self.retried(&Asked::Text(sql, bound)).await
    }

    async fn retried(&self, asked: &Asked<'_>) -> Result<(Vec<Row>, BootInstant)> {
        const TRIES: u32 = 5;
        // Each of which may have waited for a second.
        const BLOCKED_TRIES: u32 = 3;
        const PAUSE: Duration = Duration::from_millis(3);
        let _counted = self.counted();
        let mut tries = 1;
        loop {
            let sent = SystemClock.now();
            match self.send(asked).await {
                Ok(rows) => {
                    self.hear();
                    return Ok((rows, sent));
                }
                Err(error)
                    if is_worth_a_retry(&error)
                        && tries < if is_blocked(&error) { BLOCKED_TRIES } else { TRIES } =>
                {
                    self.hear();
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                Err(error) => {
                    if ends_the_line(&error) {
                        self.end();
                    }
                    return Err(failed(error));
                }
            }
        }
    }

    /// Whether the server keeps statements for this connection.
    pub(crate) fn keeps_statements(&self) -> bool {
        self.statements.is_some()
    }

    /// Has it do so: no pooler is in between.
    pub(crate) fn keep_statements(&mut self) {
        self.statements = Some(std::array::from_fn(|_| OnceCell::new()));
    }

    /// The statement of a verb, if the server keeps statements for this connection.
    pub(super) async fn prepare(&self, verb: Verb) -> Result<Option<&Statement>, tokio_postgres::Error> {
        let Some(statements) = &self.statements else { return Ok(None) };
        let prepare = || async { self.client.prepare(&verb.sql(&self.schema)).await };
        statements[verb as usize].get_or_try_init(prepare).await.map(Some)
    }

    async fn send(&self, asked: &Asked<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        let (verb, bound) = match *asked {
            Asked::Verb(verb, bound) => (verb, bound),
            Asked::Text(sql, bound) if self.keeps_statements() => {
                return self.client.query_typed(sql, bound).await;
            }
            Asked::Text(sql, bound) => return self.alone(self.client.query_typed(sql, bound)).await,
        };
        match self.prepare(verb).await? {
            Some(statement) => self.client.query(statement, bound).await,
            None => {
                let typed: Vec<_> = bound.iter().copied().zip(verb.types().iter().cloned()).collect();
                self.alone(self.client.query_typed(&verb.sql(&self.schema), &typed)).await
            }
        }
    }

    /// Asks one thing at a time: a pooler may lose track of the answers if one of several that are under way fails
    /// (PgBouncer's issue 759). Only behind an answer that nobody waits for any more there are two.
    async fn alone<T>(&self, asking: impl Future<Output = T>) -> T {
        let _turn = self.turn.lock().await;
        asking.await
    }

    /// What is spoken through.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Runs plain text, and returns the rows it gives, of texts.
    pub(crate) async fn text(&self, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
        let _counted = self.counted();
        let asking = self.client.simple_query(sql);
        let messages = if self.keeps_statements() { asking.await? } else { self.alone(asking).await? };
        self.hear();
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    pub(super) fn hear(&self) {
        self.heard.store(self.made.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// For how long nothing was heard of the server.
    pub(crate) fn silent(&self) -> Duration {
        let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
        self.made.elapsed().saturating_sub(heard)
    }

    /// Counts a call for as long as the value lives.
    pub(super) fn counted(&self) -> Counted<'_> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            self.began.store(self.made.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        Counted(&self.calls)
    }

    /// For how long somebody has waited without any answer coming.
    pub(crate) fn stuck(&self) -> Duration {
        self.silent().min(self.busy())
    }

    /// For how long somebody has waited, always.
    pub(crate) fn busy(&self) -> Duration {
        if self.calls() == 0 {
            return Duration::ZERO;
        }
        let began = Duration::from_millis(self.began.load(Ordering::Relaxed));
        self.made.elapsed().saturating_sub(began)
    }

    /// Notes which of the server's processes serves it.
    pub(super) fn served_by(&self, pid: i32) {
        let _ = self.pid.set(pid);
    }

    /// Whether the server is at work for `other`, as it says over this connection. `None` if it does not say in time.
    pub(crate) async fn sees_at_work(&self, other: &Self, limit: Duration) -> Option<bool> {
        // Behind a pooler it is another's by now; what is no number of a process is nobody's.
        let pid = other.pid.get().copied().filter(|_| other.keeps_statements()).unwrap_or(-1);
        let sql = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND state = 'active'");
        let rows = tokio::time::timeout(limit, self.text(&sql)).await.ok()?.ok()?;
        Some(!rows.is_empty())
    }

    /// How many statements wait for an answer.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Ends it: whoever waits for an answer is told that none will come.
    pub(crate) fn end(&self) {
        self.task.abort();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.life.has_changed().is_err()
    }

    /// Completes once it has ended.
    pub(crate) async fn ended(&self) {
        let mut life = self.life.clone();
        while life.changed().await.is_ok() {}
    }

    /// Whether the server answers in time.
    pub(crate) async fn answers(&self, limit: Duration) -> bool {
        matches!(tokio::time::timeout(limit, self.text("")).await, Ok(Ok(_)))
    }
}

/// Counts a call for as long as it waits.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
