use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use palisade_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::keys::Layout;
use crate::proto::{WatchCancel, WatchCreate, WatchRequest, WatchResponse, Watching as Ask, path};
use crate::txn::end_of;
use crate::wire::Wire;

/// All watches of a connection, over one stream.
///
/// What is told is only that something happened, and what was last: whoever hears it looks. So nothing has to be
/// kept for whom is slow to hear, and a connection that was made again has missed nothing.
#[derive(Debug)]
pub(crate) struct Watching {
    /// Holds at most a message per call that is under way.
    asks: UnboundedSender<WatchRequest>,
    ears: Arc<Ears>,
    next: AtomicI64,
    task: Mutex<Reader>,
    wire: Wire,
}

type Ears = Mutex<HashMap<i64, Told>>;

/// Who is told of what a watch hears.
#[derive(Debug)]
struct Told {
    heard: watch::Sender<Heard>,
    /// Whether nobody waits by it now: then the next event ends it.
    idle: bool,
    /// Whose locks alone count, if not all keys do.
    locks_of: Option<Layout>,
}

impl Told {
    fn wants(&self, answer: &WatchResponse) -> bool {
        let Some(layout) = &self.locks_of else { return true };
        let mut keys = answer.events.iter().filter_map(|event| event.kv.as_ref());
        answer.created || keys.any(|kv| layout.resource_of(&kv.key).is_some())
    }
}

#[derive(Debug)]
enum Reader {
    /// The stream is opened with the first watch: the server says nothing before.
    Waiting(UnboundedReceiver<WatchRequest>),
    Running(AbortHandle),
}

/// What a watch has heard so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// It stands, and so many times something happened since, the last time at a revision.
    Events {
        count: u64,
        revision: i64,
        last: Happened,
    },
    /// It ended, with its stream.
    Over,
}

/// What happened to a key last, as far as a watch was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    /// When.
    pub(crate) revision: i64,
    /// The revision at which the key was made; 0 if it was deleted.
    pub(crate) created: i64,
}

/// Which events a watch leaves out, as etcd numbers them.
const PUTS: i32 = 0;
const DELETES: i32 = 1;

impl Watching {
    pub(crate) fn new(wire: Wire) -> Self {
        let (asks, queue) = unbounded();
        let task = Mutex::new(Reader::Waiting(queue));
        Self { asks, ears: Arc::default(), next: AtomicI64::new(1), task, wire }
    }

    /// Watches one key.
    pub(crate) fn key(&self, key: Vec<u8>, puts: bool) -> Ear {
        self.listen(key, Vec::new(), if puts { Vec::new() } else { vec![PUTS] }, None)
    }

    /// Watches one key for being written.
    pub(crate) fn writes(&self, key: Vec<u8>) -> Ear {
        self.listen(key, Vec::new(), vec![DELETES], None)
    }

    /// Watches all keys that begin like this.
    pub(crate) fn under(&self, prefix: &[u8]) -> Ear {
        self.listen(prefix.to_vec(), end_of(prefix), Vec::new(), None)
    }

    /// Watches all locks whose names begin like this.
    pub(crate) fn locks_under(&self, prefix: &str, layout: &Layout) -> Ear {
        let range = layout.locks_under(prefix);
        self.listen(range.key, range.range_end, Vec::new(), Some(layout.clone()))
    }

    /// From now on: a watch from the past waits for up to 100 ms in the server.
    fn listen(&self, key: Vec<u8>, range_end: Vec<u8>, filters: Vec<i32>, locks_of: Option<Layout>) -> Ear {
        let watch_id = self.next.fetch_add(1, Ordering::Relaxed);
        let (said, heard) = watch::channel(Heard::Nothing);
        self.ears.lock().insert(watch_id, Told { heard: said, idle: false, locks_of });
        let create = WatchCreate { key, range_end, filters, watch_id };
        if self.asks.unbounded_send(WatchRequest { request: Some(Ask::Create(create)) }).is_err() {
            self.ears.lock().remove(&watch_id);
        }
        self.open();
        Ear { watch_id, heard, seen: Some(0), asks: self.asks.clone(), ears: Arc::clone(&self.ears) }
    }

    fn open(&self) {
        let mut task = self.task.lock();
        let Reader::Waiting(queue) = &mut *task else { return };
        let queue = std::mem::replace(queue, unbounded().1);
        let reading = read(self.wire.clone(), queue, Arc::clone(&self.ears), self.asks.clone());
        *task = Reader::Running(tokio::spawn(reading).abort_handle());
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Reader::Running(task) = &*self.task.lock() {
            task.abort();
        }
        all_over(&self.ears);
    }
}

async fn read(
    wire: Wire,
    queue: UnboundedReceiver<WatchRequest>,
    ears: Arc<Ears>,
    asks: UnboundedSender<WatchRequest>,
) {
    let ended = async {
        let mut answers = wire.stream::<_, WatchResponse>(path::WATCH, queue).await?;
        while let Some(answer) = answers.message().await? {
            hear(&ears, &answer, &asks);
        }
        Ok::<_, tonic::Status>(())
    };
    if let Err(status) = ended.await {
        tracing::debug!(%status, "the watch stream ended");
    }
    all_over(&ears);
}

fn hear(ears: &Ears, answer: &WatchResponse, asks: &UnboundedSender<WatchRequest>) {
    let mut ears = ears.lock();
    if answer.canceled {
        if !answer.cancel_reason.is_empty() {
            tracing::debug!(reason = answer.cancel_reason, "a watch was ended by the server");
        }
        // Nobody listens for what they cancelled themselves; else the sender's end tells.
        ears.remove(&answer.watch_id);
    } else if let Some(ear) = ears.get(&answer.watch_id).filter(|ear| ear.wants(answer)) {
        if ear.idle {
            ears.remove(&answer.watch_id);
            cancel(asks, answer.watch_id);
            return;
        }
        let now = answer.header.as_ref().map_or(0, |header| header.revision);
        ear.heard.send_modify(|heard| match heard {
            Heard::Nothing => *heard = Heard::Events { count: 0, revision: now, last: Happened::default() },
            Heard::Events { count, revision, last } if !answer.created => {
                *count += 1;
                *revision = now.max(*revision);
                *last = answer.happened().unwrap_or(*last);
            }
            Heard::Events { .. } | Heard::Over => {}
        });
    }
}

impl WatchResponse {
    /// What it tells of last.
    fn happened(&self) -> Option<Happened> {
        let key = self.events.last()?.kv.as_ref()?;
        Some(Happened { revision: key.mod_revision, created: key.create_revision })
    }
}

fn all_over(ears: &Ears) {
    for (_, ear) in ears.lock().drain() {
        ear.heard.send_replace(Heard::Over);
    }
}

/// One watch. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Ear {
    watch_id: i64,
    heard: watch::Receiver<Heard>,
    /// How much of it was taken notice of; `None` if what was before it is yet to be looked at.
    seen: Option<u64>,
    asks: UnboundedSender<WatchRequest>,
    ears: Arc<Ears>,
}

impl Ear {
    /// Makes [`Ear::something`] complete once at once.
    pub(crate) fn look_again(&mut self) {
        self.seen = None;
    }

    /// Nobody waits by it from now on, until [`Ear::is_back`]: the next event ends it.
    pub(crate) fn rests(&self) {
        if let Some(told) = self.ears.lock().get_mut(&self.watch_id) {
            told.idle = true;
        }
    }

    /// Somebody waits by it again, who knows all that happened until a revision. `false` if it has ended.
    pub(crate) fn is_back(&mut self, known: i64) -> bool {
        let stands = self.ears.lock().get_mut(&self.watch_id).map(|told| told.idle = false).is_some();
        match *self.heard.borrow() {
            Heard::Events { count, revision, .. } => self.seen = (revision <= known).then_some(count),
            Heard::Nothing | Heard::Over => return false,
        }
        stands
    }

    /// The revision of the last event. A server tells of it a moment before others can read it there.
    pub(crate) fn revision(&self) -> i64 {
        match *self.heard.borrow() {
            Heard::Events { revision, .. } => revision,
            Heard::Nothing | Heard::Over => 0,
        }
    }

    /// What happened last, since the watch stands.
    pub(crate) fn last(&self) -> Happened {
        match *self.heard.borrow() {
            Heard::Events { last, .. } => last,
            Heard::Nothing | Heard::Over => Happened::default(),
        }
    }

    /// Completes once `what` happened last; never, if the watch ends before.
    pub(crate) async fn until_last(&self, what: Happened) {
        let mut heard = self.heard.clone();
        let it = |heard: &Heard| matches!(heard, Heard::Events { last, .. } if *last == what);
        if heard.wait_for(it).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Completes once the watch stands: what happens from now on is heard.
    pub(crate) async fn stands(&mut self) -> Result<()> {
        match self.heard.wait_for(|heard| *heard != Heard::Nothing).await.as_deref() {
            Ok(Heard::Events { .. }) => Ok(()),
            _ => Err(deaf()),
        }
    }

    /// Completes once something has happened since the last time.
    pub(crate) async fn something(&mut self) -> Result<()> {
        let seen = self.seen;
        let news = |heard: &Heard| match heard {
            Heard::Nothing => false,
            Heard::Events { count, .. } => seen != Some(*count),
            Heard::Over => true,
        };
        let heard = match self.heard.wait_for(news).await.as_deref() {
            Ok(Heard::Events { count, .. }) => *count,
            _ => return Err(deaf()),
        };
        self.seen = Some(heard);
        Ok(())
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if self.ears.lock().remove(&self.watch_id).is_some() {
            cancel(&self.asks, self.watch_id);
        }
    }
}

fn cancel(asks: &UnboundedSender<WatchRequest>, watch_id: i64) {
    let cancel = Ask::Cancel(WatchCancel { watch_id });
    let _ = asks.unbounded_send(WatchRequest { request: Some(cancel) });
}

pub(crate) fn deaf() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection was lost")
}
