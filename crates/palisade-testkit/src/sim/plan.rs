use std::time::Duration;

use serde::Serialize;

use crate::history::HoldMode;

/// All that happens in one simulation, as data: what nodes do, and what is done to them.
///
/// It follows from a seed; a failing one is cut down part by part while it still fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The seed, from which small chances follow too: delays, ids of claims, jitter.
    pub seed: u64,
    /// The TTL of all claims.
    pub ttl: Duration,
    /// How long a call may take.
    pub call_timeout: Duration,
    /// Who takes part.
    pub nodes: Vec<NodePlan>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// One simulated process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodePlan {
    /// How far its clock is ahead of the world's.
    pub ahead: Duration,
    /// How much faster than the world's its clock runs, in millionths; slower if negative.
    pub faster_ppm: i32,
    /// How long a message takes one way, at least and at most.
    pub latency: (Duration, Duration),
    /// What its tasks do, one after the other.
    pub tasks: Vec<Vec<Step>>,
}

/// A task takes something, uses it and gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// How long it rests before.
    pub after: Duration,
    /// What it takes.
    pub want: Want,
    /// Which of several of that kind.
    pub number: u8,
    /// For how long it waits.
    pub patience: Patience,
    /// For how long it holds.
    pub hold: Duration,
    /// The longest that its guard may live.
    pub longest_hold: Option<Duration>,
    /// What it does under the lock.
    pub effect: Effect,
    /// How it gives it back.
    pub end: End,
    /// Where it is cancelled.
    pub cancel: Option<Cancel>,
}

/// What a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Want {
    /// A mutex.
    Mutex,
    /// A read-write lock, to write.
    Write,
    /// A read-write lock, to read.
    Read,
    /// One slot of a semaphore of two.
    Slot,
    /// The leadership.
    Lead,
}

impl Want {
    /// The number of slots of every semaphore.
    pub const SLOTS: u32 = 2;

    pub(super) fn mode(self) -> HoldMode {
        match self {
            Self::Mutex | Self::Write | Self::Lead => HoldMode::Exclusive,
            Self::Read => HoldMode::Shared,
            Self::Slot => HoldMode::Slot(Self::SLOTS),
        }
    }

    pub(super) fn key(self, number: u8) -> String {
        let kind = match self {
            Self::Mutex => "mutex",
            Self::Write | Self::Read => "rw",
            Self::Slot => "slots",
            Self::Lead => "lead",
        };
        format!("{kind}/{number}")
    }
}

/// For how long a step waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Patience {
    /// It asks once.
    Once,
    /// At most so long.
    Within(Duration),
    /// For ever.
    Forever,
}

/// What a step does under the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Effect {
    /// Nothing.
    None,
    /// It adds to a set, if its guard is still valid.
    Checked,
    /// It adds to a set whatever its guard says: the fence must save the set.
    Zombie,
}

/// How a step gives back what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum End {
    /// It waits for the release.
    Release,
    /// It drops the guard.
    Drop,
}

/// A future that is dropped half-way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cancel {
    /// Which.
    pub phase: Phase,
    /// After how many polls; plans of seeds have 0 to 7.
    pub polls: usize,
}

/// The parts of a step that can be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// Taking.
    Acquire,
    /// Opening the set.
    Open,
    /// Writing the set.
    Write,
    /// Giving back.
    Release,
}

/// Something that goes wrong. Times count from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Fault {
    /// A node stands still: neither timers nor answers reach it.
    Pause {
        /// Which.
        node: usize,
        /// From when.
        at: Duration,
        /// For how long.
        lasts: Duration,
    },
    /// A node ends between two instructions, and another takes its place.
    Crash {
        /// Which.
        node: usize,
        /// When.
        at: Duration,
        /// How long until another is there.
        gap: Duration,
    },
    /// A node closes its client, ends, and another takes its place.
    Leave {
        /// Which.
        node: usize,
        /// When.
        at: Duration,
        /// How long until it has ended.
        gap: Duration,
    },
    /// Messages of a node are lost.
    Cut {
        /// Which.
        node: usize,
        /// From when.
        at: Duration,
        /// For how long.
        lasts: Duration,
        /// Which way.
        way: Way,
        /// Whether the sender learns nothing of it.
        silent: bool,
    },
    /// Messages of a node take longer.
    Slow {
        /// Which.
        node: usize,
        /// From when.
        at: Duration,
        /// For how long.
        lasts: Duration,
        /// By how much, at most, one way.
        by: Duration,
    },
    /// Something happens to one message.
    Message {
        /// The node that sends it.
        node: usize,
        /// Its how manyth.
        number: u64,
        /// What.
        fate: Fate,
    },
}

/// Which messages are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Way {
    /// All.
    Both,
    /// Requests.
    There,
    /// Answers: what was asked for is done.
    Back,
}

/// What happens to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Fate {
    /// The request is lost.
    RequestLost {
        /// Whether the sender learns nothing of it.
        silent: bool,
    },
    /// The answer is lost.
    AnswerLost {
        /// Whether the sender learns nothing of it.
        silent: bool,
    },
    /// What was asked for is done once more, a while later; but not what the contract says to do
    /// once only, such as a write.
    Twice {
        /// How much later.
        after: Duration,
    },
    /// The request comes late, after others that were sent later.
    RequestLate {
        /// By how much.
        by: Duration,
    },
    /// The answer comes late.
    AnswerLate {
        /// By how much.
        by: Duration,
    },
}

impl Fault {
    /// When it strikes, for those that have a time.
    pub(super) fn strikes_at(&self) -> Option<Duration> {
        match *self {
            Self::Pause { at, .. }
            | Self::Leave { at, .. }
            | Self::Crash { at, .. }
            | Self::Cut { at, .. }
            | Self::Slow { at, .. } => Some(at),
            Self::Message { .. } => None,
        }
    }

    /// When it is over, for those that have a time.
    pub(super) fn over(&self) -> Duration {
        match *self {
            Self::Pause { at, lasts, .. } | Self::Cut { at, lasts, .. } | Self::Slow { at, lasts, .. } => {
                at + lasts
            }
            Self::Crash { at, gap, .. } | Self::Leave { at, gap, .. } => at + gap,
            Self::Message { .. } => Duration::ZERO,
        }
    }

    /// Whom it strikes.
    pub fn node(&self) -> usize {
        match *self {
            Self::Pause { node, .. }
            | Self::Crash { node, .. }
            | Self::Leave { node, .. }
            | Self::Cut { node, .. }
            | Self::Slow { node, .. }
            | Self::Message { node, .. } => node,
        }
    }
}

impl Plan {
    /// For how many TTLs faults may strike.
    pub(super) const LENGTH: u32 = 8;

    /// Whether no more goes wrong than what nobody should notice: two messages that are lost or
    /// late, where every renewal may be tried three times.
    pub fn is_gentle(&self) -> bool {
        self.faults.len() <= 2 && self.faults.iter().all(|fault| matches!(fault, Fault::Message { .. }))
    }

    /// When the last fault is over, counted from the beginning.
    pub fn calm_after(&self) -> Duration {
        let messages = self.faults.iter().any(|fault| matches!(fault, Fault::Message { .. }));
        let least = if messages { self.ttl * Self::LENGTH } else { Duration::ZERO };
        self.faults.iter().map(Fault::over).max().unwrap_or_default().max(least)
    }

    /// The longest that a request can be on its way, all its fates taken together, and be repeated.
    pub(super) fn latest(&self) -> Duration {
        let delays = self.faults.iter().map(|fault| match *fault {
            Fault::Slow { by, .. }
            | Fault::Message { fate: Fate::RequestLate { by } | Fate::Twice { after: by }, .. } => by,
            _ => Duration::ZERO,
        });
        delays.sum::<Duration>() + self.ttl
    }

    /// The longest that all steps together can take once nothing disturbs them any more.
    pub(super) fn longest(&self) -> Duration {
        let steps = self.nodes.iter().flat_map(|node| &node.tasks).flatten();
        let work: Duration =
            steps.map(|step| step.after + step.hold + self.ttl * 2 + self.call_timeout * 4).sum();
        work + self.ttl * 10 + Duration::from_mins(1)
    }
}
