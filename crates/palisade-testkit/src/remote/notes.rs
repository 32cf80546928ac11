use std::collections::HashMap;

use palisade_core::{Claim, ClaimId, ConnectionState, GoneReason, Signal, Signals};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::wire::{Gone, Key};

/// What a client knows beyond any one connection.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) signals: Signals,
    /// What it believes to hold; a new connection asks what became of it.
    held: Mutex<HashMap<ClaimId, Key>>,
    pub(super) closed: watch::Sender<bool>,
}

impl Notes {
    pub(super) fn new() -> Self {
        Self { signals: Signals::new(), held: Mutex::default(), closed: watch::Sender::new(false) }
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(super) fn holds(&self, claim: &Claim) {
        self.held.lock().insert(claim.id, Key::of(claim));
    }

    /// Gone, or given back: no news of it are wanted.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.held.lock().remove(&claim);
    }

    pub(super) fn held(&self) -> Vec<Key> {
        self.held.lock().values().cloned().collect()
    }

    /// The server said so. The claim's own answer may still be on its way, so that it need not be
    /// known to be held.
    pub(super) fn gone(&self, claim: &str, reason: Gone) {
        let Ok(claim) = claim.parse::<ClaimId>() else { return };
        self.forget(claim);
        self.signals.send(Signal::Gone { claim, reason: GoneReason::from(reason) });
    }

    pub(super) fn connection(&self, state: ConnectionState) {
        if !self.is_closed() {
            self.signals.send(Signal::Connection(state));
        }
    }
}
