//! A process of its own that takes a lock, to be killed (−9), stopped (SIGSTOP) and cancelled.
//!
//! It speaks one JSON object per line on its standard output ([`Event`]) and obeys one command per
//! line on its standard input: `acquire`, `release`, `write VALUE`, `rounds N`, `child`, `quit`.
//! SIGTERM cancels what it does and ends it.

mod driver;
mod process;

use palisade_core::Token;
use serde::{Deserialize, Serialize};

pub(crate) use self::driver::Taker;
pub use self::process::main;

/// What a taker tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// It is connected.
    Ready,
    /// It begins to wait.
    Waiting,
    /// It holds the lock.
    Granted {
        /// The grant's token; as text, because JSON numbers end at 2^53.
        token: String,
    },
    /// It was told that the lock is lost.
    Lost {
        /// Why.
        reason: String,
        /// Whether the guard still called itself valid then, which must never be.
        valid: bool,
    },
    /// It gave the lock back.
    Released {
        /// Whether it was still held.
        in_time: bool,
    },
    /// Its fenced write is in force.
    Written,
    /// Its fenced write was refused.
    Refused {
        /// Why.
        reason: String,
    },
    /// It started a command that inherited the lifeline.
    Child {
        /// The command's process.
        pid: i32,
    },
    /// Something could not be done.
    Failed {
        /// Why.
        error: String,
    },
}

impl Event {
    /// The token of a grant.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token } => token.parse().ok(),
            _ => None,
        }
    }
}
