use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use crate::{BootInstant, ClaimView, Mode, Token};

/// An admitted claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its fencing token.
    pub token: Token,
    /// Its slot, for a claim in [`Mode::Slot`].
    pub slot: Option<u32>,
    /// Until when the engine honours it on *this* machine's clock: the instant before the last
    /// refresh that reached the engine was sent, plus the TTL in force there.
    ///
    /// For a claim that was handed over while it waited, the last refresh is its last renewal in
    /// the queue. The client subtracts the engine's drift margin; the engine does not.
    pub valid_until: BootInstant,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It holds the resource.
    Granted(Grant),
    /// It waits in line.
    Queued(Place),
    /// It would have to wait and said it will not. Nothing was left behind.
    Busy(Busy),
}

/// A place in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How many claims wait ahead of it, as far as the engine knows.
    pub ahead: u32,
    /// Until when the place stands without a renewal, counted as in [`Grant::valid_until`].
    pub valid_until: BootInstant,
}

/// Why a claim that will not wait was turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// Who holds the resource, as far as the engine knows.
    pub holders: Vec<ClaimView>,
    /// When asking again could help, on engines that must observe a holder before they may call
    /// it dead (Kubernetes).
    pub look_again_in: Option<Duration>,
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The claim holds the resource; its ownership was checked after the wake-up.
    Granted(Grant),
    /// The claim is no more.
    Gone(GoneReason),
}

/// Why a claim is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GoneReason {
    /// It was not renewed within its TTL.
    Expired,
    /// An operator ended it.
    Evicted {
        /// What the operator wrote.
        reason: String,
    },
    /// The session that carried it ended.
    SessionLost,
    /// Its client withdrew it.
    Withdrawn,
    /// The engine does not know the claim, or no longer.
    Unknown,
}

/// What to change about a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Hold it in another mode: exclusive to shared (downgrade), or another number of slots
    /// (resize). Everything else is refused.
    Mode(Mode),
    /// Publish another value.
    Value(Option<Bytes>),
}

/// What became of a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// It is in force.
    Done,
    /// It was not made, because it could deadlock or cannot be undone safely.
    Refused(Cow<'static, str>),
    /// The claim is no more.
    Gone(GoneReason),
}

/// What became of one claim in a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// It stands, held or queued, until then; counted as in [`Grant::valid_until`].
    Valid {
        /// The new end.
        until: BootInstant,
    },
    /// It is no more.
    Gone(GoneReason),
}

/// What a withdrawal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// It held the resource, and no longer does.
    Released,
    /// It waited, and left the queue.
    LeftQueue,
    /// There was nothing to withdraw: it expired, was evicted, or was withdrawn before.
    AlreadyGone,
}

/// What an eviction found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicted {
    /// The claim was ended.
    Done,
    /// There is no such claim.
    NotFound,
}
