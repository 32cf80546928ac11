//! What a driver does as one of many that are asked for together.

use std::sync::Arc;

use palisade_core::{BootInstant, Claim};
use tokio::sync::mpsc;

use super::{Driver, Step};
use crate::ballot::Ballot;

impl Driver {
    /// As one of a round, which asks for all of them: what to ask of which node.
    pub(crate) fn open(&mut self, now: BootInstant) -> Vec<(usize, Arc<Claim>)> {
        let asks = self.start(now);
        self.awaited = asks.len();
        asks
    }

    /// Takes an answer of the round.
    pub(crate) fn take_awaited(&mut self, step: Step) {
        self.awaited = self.awaited.saturating_sub(1);
        self.take(step);
    }

    /// Whether all answers of the round are in.
    pub(crate) fn has_all(&self) -> bool {
        self.awaited == 0
    }

    /// Whether there is more to do than to take the round's answers.
    pub(crate) fn acts_alone(&self) -> bool {
        !self.steps.is_empty() || !self.waits.is_empty() || self.look_at != BootInstant::FAR_FUTURE
    }

    /// From now on the round's answers come there.
    pub(crate) fn goes_on(&mut self, late: mpsc::UnboundedReceiver<Step>) {
        self.late = Some(late);
    }

    pub(crate) fn ballot(&self) -> Arc<Ballot> {
        Arc::clone(&self.ballot)
    }
}

/// The next answer of a round, for a driver that went its own way.
pub(super) async fn next(late: &mut Option<mpsc::UnboundedReceiver<Step>>) -> Option<Step> {
    late.as_mut()?.recv().await
}
