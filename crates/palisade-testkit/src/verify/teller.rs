use std::fmt;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use palisade::Guard;
use palisade_core::{BootInstant, Clock, SystemClock};
use parking_lot::Mutex;

use super::recorder::Recorder;
use crate::history::{Answer, Call, Event, Nanos, OpId, ProcessId};

/// The present, from the kernel itself.
pub(super) fn now() -> Nanos {
    SystemClock.now().as_nanos()
}

/// Tells the recorder what one worker does: each thing before it is done, and after.
#[derive(Clone)]
pub(super) struct Teller(Arc<Inner>);

struct Inner {
    process: ProcessId,
    next: AtomicU64,
    to: Listener,
}

/// Who listens.
pub(super) enum Listener {
    /// The parent, at the other end of a pipe: what was written there outlives us.
    Pipe(Mutex<File>),
    /// A recorder in this very process.
    Here(Arc<Recorder>),
}

impl Teller {
    pub(super) fn new(process: ProcessId, to: Listener) -> Self {
        Self(Arc::new(Inner { process, next: AtomicU64::new(0), to }))
    }

    pub(super) fn process(&self) -> ProcessId {
        self.0.process
    }

    /// A value that nobody else writes.
    pub(super) fn unique(&self) -> String {
        format!("{}.{}", self.0.process, self.0.next.fetch_add(1, Ordering::Relaxed))
    }

    /// To be called before the request leaves.
    pub(super) fn call(&self, key: &str, call: Call) -> OpId {
        let process = self.0.process;
        let op = (process << 32) | self.0.next.fetch_add(1, Ordering::Relaxed);
        self.tell(Event::Call { op, process, at: now(), key: key.to_owned(), call });
        op
    }

    /// To be called when the answer is there.
    pub(super) fn answer(&self, op: OpId, answer: Answer) {
        self.tell(Event::Return { op, at: now(), answer });
    }

    /// Asks the guard whether it is valid, and tells either way.
    pub(super) fn ask(&self, hold: OpId, guard: &Guard) {
        // Read before the guard is asked: if it is valid then, it was valid now.
        let at = now();
        let until = guard.deadline().map(BootInstant::as_nanos);
        if guard.is_valid() {
            self.tell(Event::Valid { hold, at, until });
        } else {
            self.lost(hold, "no longer valid");
        }
    }

    pub(super) fn lost(&self, hold: OpId, reason: &str) {
        self.tell(Event::Lost { hold, at: now(), reason: reason.to_owned() });
    }

    fn tell(&self, event: Event) {
        match &self.0.to {
            Listener::Here(recorder) => recorder.hear(event),
            Listener::Pipe(pipe) => {
                let mut line = serde_json::to_vec(&event).unwrap_or_default();
                line.push(b'\n');
                // Nobody listens any more: the parent is dead, and so are we in a moment.
                let _ = pipe.lock().write_all(&line);
            }
        }
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").field("process", &self.0.process).finish_non_exhaustive()
    }
}
