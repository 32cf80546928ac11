//! What workers do: one file per kind of work.

mod held;
mod lock_set;
mod locks;
mod registers;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::station::{Chance, Station};
use crate::check::register_of;

/// What workers do to an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One at a time.
    Mutex,
    /// Many readers, or one writer.
    Rw,
    /// At most three at once.
    Semaphore,
    /// One leader.
    Election,
    /// A value that is written under a lock, through the fence.
    Fence,
    /// A value that is written if its version is still the one that was read.
    Register,
    /// Jepsen's test of etcd's locks: a set that is read, changed and written under a lock, by
    /// workers that are stopped half of the time.
    LockSet,
}

/// How many slots the semaphores have.
const SLOTS: u32 = 3;

impl Workload {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Mutex, Self::Rw, Self::Semaphore, Self::Election, Self::Fence, Self::Register, Self::LockSet];

    /// Its name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Rw => "rw",
            Self::Semaphore => "semaphore",
            Self::Election => "election",
            Self::Fence => "fence",
            Self::Register => "register",
            Self::LockSet => "lock-set",
        }
    }

    /// On how many keys it works: enough that a stopped holder does not stop everything, few
    /// enough that workers meet.
    const fn keys(self) -> u32 {
        match self {
            Self::Semaphore | Self::Election => 2,
            Self::Fence | Self::Rw | Self::Register => 3,
            Self::Mutex | Self::LockSet => 4,
        }
    }

    /// The keys of all its resources.
    pub(super) fn resources(self) -> Vec<String> {
        let keys = (0..self.keys()).map(|number| format!("{}/{number}", self.name()));
        if self == Self::Register { Vec::new() } else { keys.collect() }
    }

    /// The keys of all its registers.
    pub(super) fn registers(self) -> Vec<String> {
        match self {
            Self::Fence | Self::LockSet => self.resources().iter().map(|key| register_of(key)).collect(),
            Self::Register => (0..self.keys()).map(|number| format!("{}/{number}", self.name())).collect(),
            _ => Vec::new(),
        }
    }

    /// Takes one of its resources once more; says whether it could be had within `bound`.
    pub(super) async fn take_once(self, at: &Station, key: &str, bound: Duration) -> bool {
        locks::take_once(self, at, key, bound).await
    }

    /// How many tasks of each worker are at it: locks are what this is about.
    pub(super) const fn tasks(self) -> u64 {
        match self {
            Self::Register => 1,
            Self::Fence | Self::Rw | Self::Semaphore | Self::Election => 2,
            Self::Mutex => 3,
            // One for each set: Jepsen's workers add to one, but one add takes a TTL.
            Self::LockSet => 4,
        }
    }

    /// One round of it, by the task `part` of a worker.
    pub(super) async fn round(self, at: &Station, chance: &mut Chance, part: u64) {
        // Locks are held for long on their first key. Whoever came by there now and then would soon
        // stand in that line for good, so each worker has one task for it.
        let number = match self {
            Self::Mutex | Self::Rw | Self::Semaphore | Self::Election if part == 0 => 0,
            Self::Mutex | Self::Rw | Self::Semaphore | Self::Election => 1 + chance.below(self.keys() - 1),
            Self::Fence | Self::Register | Self::LockSet => chance.below(self.keys()),
        };
        let key = format!("{}/{number}", self.name());
        match self {
            Self::Mutex | Self::Rw | Self::Semaphore | Self::Election => {
                locks::round(self, at, chance, &key).await;
            }
            Self::Fence => registers::fenced_round(at, chance, &key).await,
            Self::Register => registers::versioned_round(at, chance, &key).await,
            Self::LockSet => lock_set::round(at, chance, &key).await,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|workload| workload.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|workload| workload.name()).collect();
            format!("there is no workload {text:?}; there are {}", known.join(", "))
        })
    }
}
