use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use palisade_core::{
    BootInstant, Clock, Page, Result, Selector, SystemClock, WatchStream, Watched, watch_by_looking,
};

use crate::look;
use crate::notice::Following;
use crate::registers::Registers;
use crate::shared::{Shared, Urgency};

/// Changes this close together are one look: writers pay nothing for those who watch.
const COALESCE: Duration = Duration::from_millis(2);
/// How often to look if the kernel does not tell.
const BLIND: Duration = Duration::from_millis(250);

/// Follows resources and registers: SQLite appends every commit to a file, and the kernel tells
/// when it is written.
pub(crate) async fn watch(
    shared: &Arc<Shared>,
    registers: &Arc<Registers>,
    selector: &Selector,
) -> Result<WatchStream> {
    // Enlisted before the first look, and one receiver for all of them: a change during a look is
    // still unseen afterwards.
    let news = Arc::new(tokio::sync::Mutex::new(News::new(shared.notices.changes.subscribe())));
    let following = follow(shared, registers, selector).await?;
    let (shared, registers, selector) = (Arc::clone(shared), Arc::clone(registers), selector.clone());
    let look = move || {
        let (shared, registers, selector) = (Arc::clone(&shared), Arc::clone(&registers), selector.clone());
        async move { look_at(&shared, &registers, &selector).await }
    };
    let changed = move || -> BoxFuture<'static, ()> {
        // Kept in here, so that the kernel tells for as long as the stream is there.
        let (news, told) = (Arc::clone(&news), following.is_some());
        Box::pin(async move {
            let mut news = news.lock().await;
            if told { news.heard().await } else { news.or_after(BLIND).await }
        })
    };
    Ok(watch_by_looking(Arc::new(SystemClock), look, changed))
}

/// What the kernel told, and how often one has looked since.
struct News {
    changes: tokio::sync::watch::Receiver<u64>,
    echoes: usize,
}

impl News {
    /// The kernel tells when a commit is *written*. It is seen only once the writer has synced it
    /// and gone on, which no event tells: so look again a few times after each event.
    const ECHOES: [Duration; 5] = [
        Duration::from_millis(10),
        Duration::from_millis(40),
        Duration::from_millis(200),
        Duration::from_secs(1),
        Duration::from_secs(5),
    ];

    fn new(changes: tokio::sync::watch::Receiver<u64>) -> Self {
        Self { changes, echoes: Self::ECHOES.len() }
    }

    /// Completes when it is time to look.
    async fn heard(&mut self) {
        let changed = self.changes.changed();
        match Self::ECHOES.get(self.echoes) {
            None => drop(changed.await),
            Some(echo) => {
                if tokio::time::timeout(*echo, changed).await.is_err() {
                    self.echoes += 1;
                    return;
                }
            }
        }
        self.echoes = 0;
        tokio::time::sleep(COALESCE).await;
        self.changes.borrow_and_update();
    }

    async fn or_after(&mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.changes.changed()).await;
    }
}

/// Asks the kernel to tell of commits; `None` if it will not tell of all.
async fn follow(
    shared: &Arc<Shared>,
    registers: &Arc<Registers>,
    selector: &Selector,
) -> Result<Option<Vec<Following>>> {
    let mut logs = Vec::new();
    if selector.wants_resources() {
        // The log exists while anyone has the database open.
        shared.read(|_| Ok(()))?;
        logs.push(log_of(&shared.claims));
    }
    if selector.wants_registers() {
        registers.make().await?;
        logs.push(log_of(registers.path()));
    }
    Ok(logs.iter().map(|log| shared.notices.follow(shared, log)).collect())
}

/// The file that SQLite appends every commit to.
fn log_of(database: &Path) -> PathBuf {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

async fn look_at(shared: &Arc<Shared>, registers: &Registers, selector: &Selector) -> Result<Watched> {
    shared.check_open()?;
    let mut watched = Watched::default();
    let mut next = None;
    if selector.wants_resources() {
        let seen = inspect(shared, selector, &Page { after: None, limit: usize::MAX }).await?;
        watched.resources = seen.inspection.resources;
        next = seen.next_expiry;
    }
    if selector.wants_registers() {
        let now = SystemClock.now();
        watched.registers = registers.list(selector)?;
        let expiring = watched.registers.iter().filter_map(|(_, entry)| entry.expires_in);
        next = expiring.map(|left| (now + left).as_nanos()).chain(next).min();
    }
    watched.next_change = next.map(BootInstant::from_nanos);
    Ok(watched)
}

/// Inspects, after what has expired was settled.
pub(crate) async fn inspect(shared: &Arc<Shared>, selector: &Selector, page: &Page) -> Result<look::Seen> {
    // Each round settles what the last one found; time goes on, so bound it.
    const ROUNDS: usize = 3;
    let mut round = 0;
    loop {
        let now = SystemClock.now().as_nanos();
        let mut seen = shared.read(|db| look::inspect(db, &shared.namespace, selector, page, now))?;
        round += 1;
        if seen.stale.is_empty() || round > ROUNDS {
            return Ok(seen);
        }
        let (namespace, stale) = (shared.namespace.clone(), std::mem::take(&mut seen.stale));
        shared
            .decide(Urgency::Normal, move |ledger| {
                stale.iter().try_for_each(|resource| ledger.purge(&namespace, resource))
            })
            .await?;
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::Engine;

    use super::*;
    use crate::{EmbeddedConfig, EmbeddedEngine};

    #[tokio::test]
    async fn a_file_is_followed_for_as_long_as_any_stream_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let engine = EmbeddedEngine::open(EmbeddedConfig::new(folder.path())).await.unwrap();
        let everything = Selector::everything("");
        let one = engine.watch(&everything).await.unwrap();
        let two = engine.watch(&Selector::resources("")).await.unwrap();
        assert_eq!(engine.shared.notices.kernel_watches(), 2);
        drop(one);
        assert_eq!(engine.shared.notices.kernel_watches(), 1);
        drop(two);
        assert_eq!(engine.shared.notices.kernel_watches(), 0);
    }

    #[tokio::test]
    async fn a_commit_that_is_seen_late_is_looked_for_again() {
        let (told, changes) = tokio::sync::watch::channel(0);
        let mut news = News::new(changes);
        let quiet = Duration::from_millis(100);
        assert!(tokio::time::timeout(quiet, news.heard()).await.is_err(), "nothing was told yet");
        told.send_replace(1);
        // The event itself, and three more looks while the writer may still be syncing.
        for _ in 0..4 {
            tokio::time::timeout(Duration::from_secs(10), news.heard()).await.unwrap();
        }
        assert!(tokio::time::timeout(quiet, news.heard()).await.is_err(), "it does not spin");
    }
}
