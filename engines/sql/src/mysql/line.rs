use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Value};
use palisade_core::{BootInstant, Clock, Result, SystemClock, within};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::arrival::number;
use super::error::{ends_the_line, failed, is_worth_a_retry, lost};
use super::server::text;

type Failure = mysql_async::Error;

/// What all sessions do: id, user, host, database, command, time, state and more. As a table
/// (`information_schema.processlist`) MySQL cannot show it while any of them runs a statement with an emoji in it.
pub(super) const PROCESSES: &str = "SHOW PROCESSLIST";

/// One connection, which does one thing after the other. Ends when it is dropped.
///
/// A task of its own has it: whoever asks may be gone before the answer is there, and what is half read would be taken
/// for the answer to the next.
pub(crate) struct Line {
    jobs: mpsc::UnboundedSender<Job>,
    task: AbortHandle,
    /// Closed when the connection has ended.
    life: watch::Receiver<()>,
    calls: AtomicUsize,
    /// Milliseconds since it was made at which the first of those that wait began to.
    began: AtomicU64,
    heard: Arc<Heard>,
    /// The number of the server's session.
    id: u32,
}

/// When the server was last heard.
struct Heard {
    made: Instant,
    /// Milliseconds since it was made.
    at: AtomicU64,
}

struct Job {
    work: Work,
    tell: oneshot::Sender<(Result<Said, Failure>, BootInstant)>,
}

/// What a server says to a statement.
struct Said {
    rows: Vec<Row>,
    /// How many rows it changed, as the server counts.
    changed: u64,
}

enum Work {
    /// A statement that the server keeps, and what is bound to it.
    Call(Cow<'static, str>, Vec<Value>),
    Text(String),
    Ping,
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
    /// `looks`: how often to look whether a connection that has nothing to do is still there.
    pub(super) fn new(conn: Conn, looks: Duration) -> Self {
        let id = conn.id();
        let (alive, life) = watch::channel(());
        let (jobs, work) = mpsc::unbounded_channel();
        let heard = Arc::new(Heard { made: Instant::now(), at: AtomicU64::new(0) });
        let listens = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            drive(conn, work, looks, &listens).await;
            drop(alive);
        });
        let (calls, began) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { jobs, task: task.abort_handle(), life, calls, began, heard, id }
    }

    /// Runs a statement, again if the server undid it for no fault of ours. Says when the last try was sent.
    pub(super) async fn call(
        &self,
        sql: impl Into<Cow<'static, str>>,
        bound: Vec<Value>,
    ) -> Result<(Vec<Row>, BootInstant)> {
        let (said, sent) = self.retried(sql.into(), bound).await?;
        Ok((said.rows, sent))
    }

    /// The same for a statement that changes rows. Says how many it changed: none that stayed as it was.
    pub(super) async fn alter(&self, sql: &str, bound: Vec<Value>) -> Result<(u64, BootInstant)> {
        let (said, sent) = self.retried(Cow::Owned(sql.to_owned()), bound).await?;
        Ok((said.changed, sent))
    }

    async fn retried(&self, sql: Cow<'static, str>, bound: Vec<Value>) -> Result<(Said, BootInstant)> {
        const TRIES: u32 = 5;
        const PAUSE: Duration = Duration::from_millis(3);
        let _counted = self.counted();
        let mut tries = 1;
        loop {
            match self.send(Work::Call(sql.clone(), bound.clone())).await? {
                (Ok(said), sent) => return Ok((said, sent)),
                (Err(error), _) if is_worth_a_retry(&error) && tries < TRIES => {
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                (Err(error), _) => return Err(failed(error)),
            }
        }
    }

    /// Runs a statement, not again whatever the server says. Says when it was sent.
    pub(super) async fn once(&self, sql: &'static str, bound: Vec<Value>) -> Result<(Vec<Row>, BootInstant)> {
        let _counted = self.counted();
        let (said, sent) = self.send(Work::Call(Cow::Borrowed(sql), bound)).await?;
        Ok((said.map_err(failed)?.rows, sent))
    }

    /// Runs plain text.
    pub(super) async fn text(&self, sql: impl Into<String>) -> Result<Result<Vec<Row>, Failure>> {
        let _counted = self.counted();
        Ok(self.send(Work::Text(sql.into())).await?.0.map(|said| said.rows))
    }

    async fn send(&self, work: Work) -> Result<(Result<Said, Failure>, BootInstant)> {
        let (tell, told) = oneshot::channel();
        self.jobs.send(Job { work, tell }).map_err(|_| lost())?;
        told.await.map_err(|_| lost())
    }

    /// The number of the server's session, as it was told when the connection was made.
    pub(super) fn id(&self) -> i64 {
        i64::from(self.id)
    }

    /// For how long nothing was heard of the server.
    pub(crate) fn silent(&self) -> Duration {
        let heard = Duration::from_millis(self.heard.at.load(Ordering::Relaxed));
        self.heard.made.elapsed().saturating_sub(heard)
    }

    fn counted(&self) -> Counted<'_> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            self.began.store(self.heard.made.elapsed().as_millis() as u64, Ordering::Relaxed);
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
        self.heard.made.elapsed().saturating_sub(began)
    }

    /// Whether the server is at work for `other`, as it says over this connection. `None` if it does not say in time.
    pub(crate) async fn sees_at_work(&self, other: &Self, limit: Duration) -> Option<bool> {
        const COMMAND: usize = 4;
        let rows = tokio::time::timeout(limit, self.text(PROCESSES)).await.ok()?.ok()?.ok()?;
        let own = rows.iter().find(|row| number(row, 0) == Some(other.id()));
        Some(own.is_some_and(|row| text(row, COMMAND).is_none_or(|command| command != "Sleep")))
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
        matches!(tokio::time::timeout(limit, self.send(Work::Ping)).await, Ok(Ok((Ok(_), _))))
    }
}

/// Does one job after the other, until the connection is of no use any more.
async fn drive(mut conn: Conn, mut jobs: mpsc::UnboundedReceiver<Job>, looks: Duration, heard: &Heard) {
    loop {
        // Nobody tells that a connection has ended while it has nothing to do.
        let Job { work, tell } = match within(looks, jobs.recv()).await {
            Some(Some(job)) => job,
            Some(None) => break,
            None => match conn.ping().await {
                Ok(()) => continue,
                Err(error) => {
                    tracing::debug!(%error, "a connection ended");
                    return;
                }
            },
        };
        // Nobody waits for it any more, and it was not begun.
        if tell.is_closed() {
            continue;
        }
        let sent = SystemClock.now();
        let is_call = matches!(work, Work::Call(..));
        let done = do_job(&mut conn, work).await;
        let over = done.as_ref().is_err_and(ends_the_line);
        let undo = is_call && done.is_err() && !over;
        if !over {
            heard.at.store(heard.made.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        let _ = tell.send((done, sent));
        // A statement that was interrupted leaves its transaction, with its locks, behind.
        if over || (undo && conn.query_drop("ROLLBACK").await.is_err()) {
            return;
        }
    }
    let _ = conn.disconnect().await;
}

async fn do_job(conn: &mut Conn, work: Work) -> Result<Said, Failure> {
    let rows = match work {
        Work::Call(sql, bound) => {
            let bound = if bound.is_empty() { Params::Empty } else { Params::Positional(bound) };
            let mut answer = conn.exec_iter(sql, bound).await?;
            let rows = answer.collect().await?;
            // Whatever went wrong after the rows comes after them.
            answer.drop_result().await?;
            rows
        }
        Work::Text(sql) => {
            let mut answer = conn.query_iter(sql).await?;
            let rows = answer.collect().await?;
            answer.drop_result().await?;
            rows
        }
        Work::Ping => {
            conn.ping().await?;
            Vec::new()
        }
    };
    Ok(Said { rows, changed: conn.affected_rows() })
}

/// Counts a call for as long as it waits.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
