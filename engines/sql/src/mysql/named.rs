use std::future::Future;
use std::sync::Weak;
use std::time::Duration;

use mysql_async::{Row, Value};
use palisade_core::{Error, ErrorKind, Result, within};
use tokio::runtime::Handle;

use super::arrival::number;
use super::error::failed;
use super::line::Line;
use crate::engine::Inner;
use crate::error::{closed, unexpected};

/// One connection that has a lock of its own name for as long as it lives: by that others see that it does, and the server
/// can be told to stop what it does there.
pub(super) struct Named {
    pub(super) line: Line,
    /// Nobody else is called so.
    pub(super) name: String,
    call_timeout: Duration,
    /// By way of which a statement is stopped that runs here.
    desk: Weak<Inner>,
}

/// What is to be stopped.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Statement,
    Session,
}

impl Named {
    /// A connection that has the lock of its name.
    pub(super) fn new(line: Line, name: String, call_timeout: Duration, desk: Weak<Inner>) -> Self {
        Self { line, name, call_timeout, desk }
    }

    /// Has the server stop what it does here. Completes once it was told.
    pub(super) async fn cancel(&self) -> Result<()> {
        self.bounded(self.stop(Stop::Statement)).await
    }

    /// Ends it. A connection on which a statement runs is not closed before that is done, so that the server is told.
    pub(super) fn end(&self) {
        self.end_while(self.line.calls() > 0);
    }

    /// Ends it; `runs`: whether a statement runs here, also if nobody waits for its answer any more.
    pub(super) fn end_while(&self, runs: bool) {
        if self.line.has_ended() {
            return;
        }
        self.line.end();
        if let Some(runtime) = Handle::try_current().ok().filter(|_| runs) {
            let stopping = self.stop(Stop::Session);
            runtime.spawn(async move {
                if let Err(error) = stopping.await {
                    tracing::debug!(%error, "a session could not be ended at once");
                }
            });
        }
    }

    /// Completes once the server was told to end what it may still do here.
    pub(super) async fn stopped(&self) {
        if let Err(error) = self.bounded(self.stop(Stop::Session)).await {
            tracing::debug!(%error, "a session could not be ended at once");
        }
    }

    /// Runs a statement that has one row, not again whatever the server says.
    pub(super) async fn one(&self, sql: &'static str, bound: Vec<Value>) -> Result<Row> {
        let (rows, _) = self.line.once(sql, bound).await?;
        rows.into_iter().next().ok_or_else(unexpected)
    }

    pub(super) async fn bounded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.call_timeout;
        within(limit, call).await.unwrap_or_else(|| {
            let message = format!("the server did not answer within {limit:?}");
            Err(Error::new(ErrorKind::Timeout, message).with_unknown_effect())
        })
    }

    fn stop(&self, what: Stop) -> impl Future<Output = Result<()>> + Send + 'static {
        stop(Weak::clone(&self.desk), self.name.clone(), self.line.id(), what)
    }
}

/// Has the server stop what a session does, or end it; unless it is gone, and another has its number.
async fn stop(desk: Weak<Inner>, name: String, id: i64, what: Stop) -> Result<()> {
    let desk = desk.upgrade().ok_or_else(closed)?;
    let line = desk.link.line().await?;
    let line = line.mysql()?;
    let (rows, _) = line.call("SELECT IS_USED_LOCK(?)", vec![name.into()]).await?;
    if rows.first().and_then(|row| number(row, 0)) != Some(id) {
        return Ok(());
    }
    let what = match what {
        Stop::Statement => "QUERY",
        Stop::Session => "CONNECTION",
    };
    line.text(format!("KILL {what} {id}")).await?.map(drop).map_err(failed)
}

/// Refuses what stands before the server and shares sessions; says what to use `instead`.
pub(super) fn shared(instead: &str) -> Error {
    let message = format!(
        "a proxy or pooler stands before the server, and gives one session to many: a lock would be whoever's comes next; name the server itself, or use {instead}"
    );
    Error::new(ErrorKind::Unsupported, message)
}
