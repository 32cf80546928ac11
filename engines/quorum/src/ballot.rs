use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use palisade_core::{BootInstant, Busy, Claim, ClaimId, GoneReason, Grant, Place, Token};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::attempt::{self, ATTEMPTS};
use crate::error::Failure;

/// One claim of the quorum: how it stands on each node, and what its caller was told.
#[derive(Debug)]
pub(crate) struct Ballot {
    pub(crate) claim: Arc<Claim>,
    pub(crate) tally: Mutex<Tally>,
    pub(crate) phase: watch::Sender<Phase>,
    /// Held by whoever sends claims to nodes. A withdrawal ends them first and then takes it, so
    /// that no claim is sent after the withdrawal that should end it.
    pub(crate) driving: Arc<tokio::sync::Mutex<()>>,
    pub(crate) task: Mutex<Option<AbortHandle>>,
    /// It is asked for together with others, by a round that gives back what comes too late.
    pub(crate) in_round: AtomicBool,
}

/// What a caller is told.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Asking,
    Granted(Grant),
    Queued(Place),
    Busy(Busy),
    Failed(Failure),
    Gone(GoneReason),
}

/// How a claim stands.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) seats: Vec<Seat>,
    /// Ids given back on a node that has not confirmed it yet.
    pub(crate) leaving: Vec<(usize, Arc<Claim>)>,
    /// The token handed out.
    pub(crate) granted: Option<Token>,
    /// Until when it stands without a renewal.
    pub(crate) until: BootInstant,
}

/// How a claim stands on one node.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) attempt: u8,
    /// The claim as the node knows it.
    pub(crate) claim: Arc<Claim>,
    pub(crate) standing: Standing,
    pub(crate) until: BootInstant,
    /// Before the request that the node answered was sent.
    pub(crate) asked: BootInstant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing is there.
    Absent,
    /// Something may be there.
    Doubtful,
    Queued {
        ahead: u32,
    },
    Held(Token),
    Gone(GoneReason),
}

impl Phase {
    pub(crate) fn is_decided(&self) -> bool {
        !matches!(self, Self::Asking)
    }
}

impl Ballot {
    pub(crate) fn new(claim: &Arc<Claim>, nodes: usize, now: BootInstant) -> Self {
        let seat = || Seat {
            attempt: 0,
            claim: Arc::clone(claim),
            standing: Standing::Absent,
            until: now,
            asked: now,
        };
        Self {
            claim: Arc::clone(claim),
            tally: Mutex::new(Tally {
                seats: (0..nodes).map(|_| seat()).collect(),
                leaving: Vec::new(),
                granted: None,
                until: now + claim.ttl.as_duration(),
            }),
            phase: watch::Sender::new(Phase::Asking),
            driving: Arc::default(),
            task: Mutex::default(),
            in_round: AtomicBool::new(false),
        }
    }

    pub(crate) fn tell(&self, phase: Phase) {
        self.phase.send_modify(|now| {
            // A claim that is gone stays so for all who know of it.
            if !matches!(now, Phase::Gone(_)) {
                *now = phase;
            }
        });
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Whether its client gave it back.
    pub(crate) fn is_withdrawn(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Gone(GoneReason::Withdrawn))
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Gone(_))
    }

    /// Stops whoever sends claims for it in a task of its own. It is over soon, not now.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl Seat {
    /// Moves on to the next id of the claim. The old one, which is to be withdrawn, and whether there is a next.
    pub(crate) fn leave(&mut self, base: ClaimId) -> (Arc<Claim>, bool) {
        let old = Arc::clone(&self.claim);
        self.standing = Standing::Absent;
        self.attempt = (self.attempt + 1).min(ATTEMPTS);
        if self.attempt == ATTEMPTS {
            return (old, false);
        }
        let mut next = (*old).clone();
        next.id = attempt::nth(base, self.attempt);
        self.claim = Arc::new(next);
        (old, true)
    }

    pub(crate) fn token(&self) -> Option<Token> {
        match self.standing {
            Standing::Held(token) => Some(token),
            _ => None,
        }
    }

    /// Whether a node may know the claim.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self.standing, Standing::Doubtful | Standing::Queued { .. } | Standing::Held(_))
    }
}

impl Tally {
    /// How many nodes said that the claim is gone, and the most telling reason.
    pub(crate) fn gone(&self) -> (usize, GoneReason) {
        let reasons = self.seats.iter().filter_map(|seat| match &seat.standing {
            Standing::Gone(reason) => Some(reason),
            _ => None,
        });
        let (mut count, mut most) = (0, GoneReason::Unknown);
        for reason in reasons {
            count += 1;
            most = more_telling(most, reason.clone());
        }
        (count, most)
    }
}

/// Of two reasons for the same, the one that tells more.
pub(crate) fn more_telling(one: GoneReason, other: GoneReason) -> GoneReason {
    let weight = |reason: &GoneReason| match reason {
        GoneReason::Evicted { .. } => 4,
        GoneReason::Expired => 3,
        GoneReason::SessionLost => 2,
        GoneReason::Withdrawn => 1,
        _ => 0,
    };
    if weight(&other) > weight(&one) { other } else { one }
}

/// The end that a majority honours: the `majority`th latest of them.
pub(crate) fn honoured_until(mut ends: Vec<BootInstant>, majority: usize) -> Option<BootInstant> {
    ends.sort_unstable_by(|one, other| other.cmp(one));
    ends.get(majority.checked_sub(1)?).copied()
}
