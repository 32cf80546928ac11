use std::sync::Arc;

use palisade_core::memory::MemoryStore;
use palisade_core::{Clock, Engine};

use crate::broken::{BrokenFixture, Fault};

/// A mistake that is planted, to see that the simulation finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bug {
    /// Deadlines count from when the answer came, not from before the request was sent.
    CountsFromReply,
    /// A claim that arrives after its withdrawal is let in, and nobody will withdraw it.
    ClaimOutlivesWithdrawal,
    /// A wait whose line broke is never told.
    BrokenLineUnnoticed,
    /// Renewals are answered without asking the server.
    RenewsOnPaper,
    /// Releases are answered without asking the server.
    ReleasesOnPaper,
    /// The server has this fault.
    Server(Fault),
}

/// What all nodes connect to.
pub(super) enum Store {
    Sound(MemoryStore),
    Broken(BrokenFixture),
}

impl Store {
    pub(super) fn new(bug: Option<Bug>, clock: Arc<dyn Clock>) -> Self {
        match bug {
            Some(Bug::Server(fault)) => Self::Broken(BrokenFixture::on_clock(fault, clock)),
            _ => Self::Sound(MemoryStore::new(clock)),
        }
    }

    pub(super) fn connect(&self) -> Arc<dyn Engine> {
        match self {
            Self::Sound(store) => Arc::new(store.connect("")),
            Self::Broken(store) => store.open(""),
        }
    }
}
