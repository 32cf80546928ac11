use std::collections::BTreeMap;

use palisade_core::Token;
use serde::{Deserialize, Serialize};

use super::{Nanos, OpId, ProcessId};

/// One line of a history.
///
/// A call is written before its request leaves, its return after the answer came, so that a
/// process that is killed in between leaves an operation whose effect is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// How the run was made. The first line.
    Begin(Begin),
    /// Something is asked.
    Call {
        /// The operation.
        op: OpId,
        /// Who asks.
        process: ProcessId,
        /// From before the request left.
        at: Nanos,
        /// What it concerns.
        key: String,
        /// What is asked.
        #[serde(flatten)]
        call: Call,
    },
    /// Something was answered.
    Return {
        /// The operation.
        op: OpId,
        /// From after the answer came.
        at: Nanos,
        /// What was answered.
        #[serde(flatten)]
        answer: Answer,
    },
    /// A guard called itself valid.
    Valid {
        /// The operation that acquired it.
        hold: OpId,
        /// From before the guard was asked: it was valid then for sure.
        at: Nanos,
        /// Its deadline by now.
        until: Option<Nanos>,
    },
    /// A holder was told that its hold is lost.
    Lost {
        /// The operation that acquired it.
        hold: OpId,
        /// When.
        at: Nanos,
        /// Why.
        reason: String,
    },
    /// A process is dead: it believes nothing any more.
    Died {
        /// Which.
        process: ProcessId,
        /// From before it was killed.
        at: Nanos,
    },
    /// A fault strikes.
    Fault {
        /// Its number.
        fault: u64,
        /// When.
        at: Nanos,
        /// What kind.
        kind: FaultKind,
        /// Whom, in words.
        target: String,
        /// The process it strikes, if it strikes one.
        process: Option<ProcessId>,
    },
    /// A fault is over.
    Healed {
        /// Its number.
        fault: u64,
        /// When.
        at: Nanos,
    },
    /// The machine itself stood still.
    Stalled {
        /// From when.
        from: Nanos,
        /// Until when.
        until: Nanos,
    },
    /// From here on nothing disturbs any more.
    Calm {
        /// When.
        at: Nanos,
    },
}

/// How a run was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The version of this format: 1.
    pub format: u32,
    /// Which engine, without secrets.
    pub engine: String,
    /// The seed.
    pub seed: u64,
    /// The command to run it again.
    pub command: String,
    /// The TTL of claims, in milliseconds.
    pub ttl_ms: u64,
    /// The faults of this run that break what the engine's mutual exclusion rests on, each with the
    /// reason: once one has struck, holders may overlap, and what goes through the fence must hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub voids_exclusion: BTreeMap<FaultKind, String>,
}

/// In which mode a resource is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldMode {
    /// Alone.
    Exclusive,
    /// With others who share it.
    Shared,
    /// One slot of so many.
    Slot(u32),
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// To hold a resource.
    Acquire {
        /// In which mode.
        mode: HoldMode,
    },
    /// To give a hold back.
    Release {
        /// The operation that acquired it; `None` where a process has at most one hold per key and
        /// the history does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold: Option<OpId>,
    },
    /// To read a register.
    Read,
    /// To read a register as the holder of a lock: from then on no older holder may write.
    Open {
        /// The holder's token.
        #[serde(with = "token_text")]
        token: Option<Token>,
    },
    /// To write a register, under conditions.
    Write {
        /// The new value.
        value: String,
        /// Only if the version is this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        /// Only if no later holder than this one has been there.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "token_text")]
        token: Option<Token>,
    },
    /// To replace one value by another.
    Cas {
        /// What must be there.
        from: String,
        /// What to put there.
        to: String,
    },
    /// To append to a value.
    Append {
        /// What.
        value: String,
    },
    /// To add an element to a set that is read, changed and written under a lock.
    Add {
        /// The element.
        element: String,
    },
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The resource is held.
    Granted {
        /// The token, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "token_text")]
        token: Option<Token>,
        /// The slot, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<u32>,
        /// The deadline of the guard, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Nanos>,
    },
    /// The hold is given back.
    Released {
        /// Whether it was still held.
        in_time: bool,
    },
    /// What a register holds.
    Value {
        /// The value; `None` if there is none.
        value: Option<String>,
        /// The version, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// It is done.
    Done {
        /// The version that it made, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// A condition did not hold; it had no effect.
    Refused {
        /// The version that was found, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        /// Whether it was refused because a later holder has been there.
        #[serde(default)]
        stale: bool,
    },
    /// It had no effect: out of time, cancelled, not held, not reachable.
    Failed {
        /// Why.
        reason: String,
    },
    /// It may have had its effect or not.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// What kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A worker is stopped (SIGSTOP) for a while.
    Pause,
    /// A worker is killed (kill −9).
    Kill,
    /// The network is cut.
    Cut,
    /// The network is slow.
    Slow,
    /// A server's wall clock jumps.
    Clock,
    /// A server is killed, stopped or restarted.
    Restart,
    /// A future is dropped half-way.
    Cancel,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Pause, Self::Kill, Self::Cut, Self::Slow, Self::Clock, Self::Restart, Self::Cancel];

    /// Its name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::Cut => "cut",
            Self::Slow => "slow",
            Self::Clock => "clock",
            Self::Restart => "restart",
            Self::Cancel => "cancel",
        }
    }
}

/// Tokens travel as text: JSON numbers end at 2^53.
mod token_text {
    use palisade_core::Token;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(token: &Option<Token>, to: S) -> Result<S::Ok, S::Error> {
        match token {
            Some(token) => to.collect_str(token),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Token>, D::Error> {
        let text = Option::<std::borrow::Cow<'_, str>>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}
