use tokio::sync::broadcast;

use crate::{ClaimId, GoneReason};

/// What an engine tells its client unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// A held claim is no more: evicted, its key deleted, its session lost.
    Gone {
        /// The claim.
        claim: ClaimId,
        /// Why.
        reason: GoneReason,
    },
    /// The connection changed.
    Connection(ConnectionState),
}

/// How an engine connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Verbs reach the engine.
    Connected,
    /// They do not, for now. Guards keep their deadlines.
    Suspended,
    /// They do again, and no claim was lost by it.
    Reconnected,
    /// The session behind the claims has ended; their guards are invalid.
    Lost,
    /// The engine answers reads only.
    ReadOnly,
}

/// The engine's side of the signals, and where clients subscribe.
///
/// Bounded: a client that falls behind is told that it missed something and renews everything at
/// once, which finds out the same.
#[derive(Debug, Clone)]
pub struct Signals(broadcast::Sender<Signal>);

impl Signals {
    const KEPT: usize = 1024;

    /// A channel without subscribers.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(Self::KEPT))
    }

    /// Tells every client; nobody listening is fine.
    pub fn send(&self, signal: Signal) {
        let _ = self.0.send(signal);
    }

    /// Listens from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Signal> {
        self.0.subscribe()
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self::new()
    }
}
