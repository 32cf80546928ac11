use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use palisade_core::{ConnectionState, Error, ErrorKind, Result, Signal, Signals};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Step, error};
use crate::folder::Folder;
use crate::ledger::{Ledger, Notes, Scene};
use crate::notice::Notices;
use crate::session::{SessionId, Sessions};
use crate::store::Store;
use crate::wake::{Post, Waiters};
use crate::worker::Worker;
use crate::write_lock::{Locked, WriteLock};

/// What an engine value and its tasks and threads have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) namespace: String,
    pub(crate) call_timeout: Duration,
    /// Every claim waits for the disk, so none is decided on the caller's thread.
    pub(crate) synced: bool,
    pub(crate) folder: Folder,
    pub(crate) session: SessionId,
    pub(crate) sessions: Sessions,
    /// The engine owns the session's file, so that dropping it ends the session whatever else
    /// still runs here.
    pub(crate) lifeline: Weak<File>,
    pub(crate) write_lock: WriteLock,
    pub(crate) store: Mutex<Store>,
    pub(crate) claims: PathBuf,
    pub(crate) reader: Mutex<Option<Connection>>,
    pub(crate) notes: Notes,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) signals: Signals,
    pub(crate) post: Post,
    pub(crate) worker: Worker,
    pub(crate) notices: Arc<Notices>,
    pub(crate) runtime: Handle,
    pub(crate) closed: AtomicBool,
}

/// How long a caller spins for a lock that is held for microseconds, before it takes the way
/// through the thread, which costs more than that.
const SPIN: Duration = Duration::from_micros(60);

impl Shared {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Decides something in one write transaction, and tells those whom it concerns.
    ///
    /// At once on the caller's thread if nothing is in the way: a hop to another thread would cost
    /// more than the decision. Otherwise on the worker's, in the order asked, so that a withdrawal
    /// never overtakes the claim it withdraws, even if that claim's future was dropped.
    pub(crate) async fn decide<T: Send + 'static>(
        self: &Arc<Self>,
        urgency: Urgency,
        work: impl FnOnce(&mut Ledger<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        self.check_open()?;
        if urgency != Urgency::Heavy
            && let Some(entered) = self.try_enter()
        {
            // Again, under the lock: the engine may have been closed since, and then found nothing
            // to remove.
            self.check_open()?;
            return self.run(entered, work);
        }
        self.decide_later(urgency, work).await
    }

    /// Decides on the worker's thread.
    pub(crate) async fn decide_later<T: Send + 'static>(
        self: &Arc<Self>,
        urgency: Urgency,
        work: impl FnOnce(&mut Ledger<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let shared = Arc::clone(self);
        self.worker.submit(move || {
            // A claim that nobody waits for any more is in doubt anyway; not made is the better
            // half of the doubt.
            if urgency == Urgency::Abandonable && answer.is_closed() {
                return;
            }
            let decided = shared.enter().and_then(|entered| {
                if urgency == Urgency::Abandonable {
                    // Nothing new once the engine is closed, which removes what was there.
                    shared.check_open()?;
                }
                shared.run(entered, work)
            });
            let _ = answer.send(decided);
        })?;
        match tokio::time::timeout(self.call_timeout, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                Err(error(ErrorKind::Internal, "the decision was not finished").with_unknown_effect())
            }
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Reads a snapshot of the claims; needs no lock but this process's own.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Step<T>) -> Result<T> {
        let mut reader = self.reader.lock();
        if reader.is_none() {
            *reader = Some(Store::reader(&self.claims)?);
        }
        let db = reader.as_ref().ok_or_else(|| error(ErrorKind::Internal, "no reader"))?;
        work(db).map_err(|fault| fault.at(&self.claims))
    }

    fn run<T>(
        self: &Arc<Self>,
        entered: Entered<'_>,
        work: impl FnOnce(&mut Ledger<'_>) -> Step<T>,
    ) -> Result<T> {
        let (outcome, after) = entered.store.transact(&self.scene(), work)?;
        drop(entered);
        self.attend_to(after);
        Ok(outcome)
    }

    pub(crate) fn scene(&self) -> Scene<'_> {
        Scene {
            namespace: &self.namespace,
            session: self.session,
            sessions: &self.sessions,
            notes: &self.notes,
        }
    }

    fn try_enter(&self) -> Option<Entered<'_>> {
        if self.synced || !self.worker.is_idle() {
            return None;
        }
        if let Some(entered) = self.try_locks() {
            return Some(entered);
        }
        let start = Instant::now();
        while start.elapsed() < SPIN {
            std::hint::spin_loop();
            if let Some(entered) = self.try_locks() {
                return Some(entered);
            }
        }
        None
    }

    fn try_locks(&self) -> Option<Entered<'_>> {
        let store = self.store.try_lock()?;
        Some(Entered { _lock: self.write_lock.try_lock()?, store })
    }

    fn enter(&self) -> Result<Entered<'_>> {
        let store = self.store.lock();
        let locked = self.write_lock.lock();
        let unavailable = || error(ErrorKind::Unavailable, "the folder's write lock cannot be taken");
        Ok(Entered { _lock: locked.ok_or_else(unavailable)?, store })
    }

    /// Whether the session's own file is still in its place. Without it every other process takes
    /// this one for dead, and would pass on at once whatever it claims.
    pub(crate) fn check_session(&self) -> Result<()> {
        let file = self.lifeline.upgrade().ok_or_else(closed)?;
        if rustix::fs::fstat(&*file).is_ok_and(|stat| stat.st_nlink > 0) {
            return Ok(());
        }
        let path = self.sessions.lock_path(self.session);
        Err(error(
            ErrorKind::Unavailable,
            format!("{} was deleted while in use; connect again", path.display()),
        ))
    }

    /// Ends everything that waits here. Those who wait find the engine closed.
    pub(crate) fn shut(&self) -> bool {
        if self.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.signals.send(Signal::Connection(ConnectionState::Lost));
        self.notices.stop();
        self.notices.changes.send_modify(|count| *count += 1);
        self.waiters.tell_all();
        true
    }

    /// Whether an engine that was shut has nothing left to do: no claim that it knows of, none
    /// being made. Whoever takes the lock after this look finds the engine closed.
    pub(crate) fn is_spare(&self) -> bool {
        self.worker.is_idle() && self.store.try_lock().is_some() && self.notes.is_empty()
    }

    fn timed_out(&self) -> Error {
        self.write_lock.is_held(self.folder.path(), self.call_timeout).with_unknown_effect()
    }
}

/// How a decision may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// At once, or on the worker's thread.
    Normal,
    /// The same, and not at all if its caller has gone before its turn came.
    Abandonable,
    /// Too long for a caller's thread.
    Heavy,
}

/// Both locks: this process's, then the folder's.
struct Entered<'a> {
    // In this order, so that the folder's is let go first.
    _lock: Locked<'a>,
    store: MutexGuard<'a, Store>,
}

pub(crate) fn closed() -> Error {
    error(ErrorKind::Closed, "the connection was closed")
}
