use std::sync::Arc;
use std::time::Duration;

use super::recorder::Recorder;
use super::teller::now;
use crate::history::{Event, Nanos};

/// Notices when the machine itself stands still: then no bound can be held against the engine.
#[derive(Debug)]
pub(super) struct Stalls {
    recorder: Arc<Recorder>,
    last: Nanos,
}

impl Stalls {
    const TICK: Duration = Duration::from_millis(20);
    /// A tick that is so late is a stall; a busy machine is often late by less.
    const LATE: Duration = Duration::from_millis(200);

    pub(super) fn new(recorder: Arc<Recorder>) -> Self {
        Self { recorder, last: now() }
    }

    /// Waits for the next tick.
    pub(super) async fn tick(&mut self) {
        tokio::time::sleep(Self::TICK).await;
        let until = now();
        let from = std::mem::replace(&mut self.last, until);
        if Duration::from_nanos(until.saturating_sub(from)) > Self::TICK + Self::LATE {
            self.recorder.hear(Event::Stalled { from, until });
        }
    }
}
