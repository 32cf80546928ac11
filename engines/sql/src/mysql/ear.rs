use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::arrival::number;
use super::dial::dial_for_bells;
use super::error::failed;
use super::named::{Named, shared};
use super::{MySqlConfig, POLLED};
use crate::engine::Inner;

/// One connection that has bells, or waits for one. A bell is a lock of `GET_LOCK`, which ends with it.
pub(super) struct Ear {
    named: Named,
    /// Whether the server may be waiting here, also if nobody waits for its answer any more.
    waits: AtomicBool,
    call_timeout: Duration,
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("name", &self.named.name).finish_non_exhaustive()
    }
}

impl Ear {
    /// For how many seconds the server waits at once. One whose client went without a word is gone after that, and after
    /// the silence that is allowed.
    const AT_ONCE: u32 = 15;

    pub(super) async fn dial(config: &MySqlConfig, desk: Weak<Inner>) -> Result<Self> {
        let line = dial_for_bells(config).await?;
        // A name of ours needs no quoting.
        let name = format!("palisade/{}", Uuid::new_v4().simple());
        let sql = format!("SELECT GET_LOCK('{name}', 0), CONNECTION_ID()");
        let named = Named::new(line, name, config.call_timeout, desk);
        let rows = named.bounded(async { named.line.text(sql).await?.map_err(failed) }).await?;
        let told = rows.first().map(|row| (number(row, 0), number(row, 1)));
        if told != Some((Some(1), Some(named.line.id()))) {
            return Err(shared(POLLED));
        }
        Ok(Self { named, waits: AtomicBool::new(false), call_timeout: config.call_timeout })
    }

    /// Takes a bell if nobody has it.
    pub(super) async fn attempt(&self, bell: &str) -> Result<bool> {
        self.named.bounded(self.take(bell, 0)).await
    }

    /// Waits until nobody else has a bell, and takes it; for a while.
    pub(super) async fn wait(&self, bell: &str) -> Result<bool> {
        self.waits.store(true, Ordering::Relaxed);
        let limit = Duration::from_secs(Self::AT_ONCE.into()) + self.call_timeout;
        let taken =
            tokio::time::timeout(limit, self.take(bell, Self::AT_ONCE)).await.map_err(|_| silent())?;
        self.waits.store(false, Ordering::Relaxed);
        taken
    }

    /// Has the server end a wait that nobody wants any more.
    pub(super) async fn give_up(&self, bell: &str) -> Result<()> {
        self.named.cancel().await?;
        // It may have come in between.
        self.free(bell).await?;
        self.waits.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Gives a bell back: whoever waits for it first has it now.
    pub(super) async fn free(&self, bell: &str) -> Result<()> {
        self.named.bounded(self.named.one("SELECT RELEASE_LOCK(?)", vec![bell.into()])).await.map(drop)
    }

    pub(super) fn end(&self) {
        self.named.end_while(self.waits.load(Ordering::Relaxed));
    }

    /// Ends it, and completes once the server knows.
    pub(super) async fn end_now(&self) {
        self.named.line.end();
        if self.waits.load(Ordering::Relaxed) {
            self.named.stopped().await;
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.named.line.has_ended()
    }

    pub(super) async fn ended(&self) {
        self.named.line.ended().await;
    }

    async fn take(&self, bell: &str, seconds: u32) -> Result<bool> {
        let row = self.named.one("SELECT GET_LOCK(?, ?)", vec![bell.into(), seconds.into()]).await?;
        Ok(number(&row, 0) == Some(1))
    }
}

fn silent() -> Error {
    Error::new(ErrorKind::Timeout, "the server went silent").with_unknown_effect()
}
