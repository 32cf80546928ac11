use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use palisade_core::Modes;

use super::workload::Workload;
use crate::HelperProgram;
use crate::history::FaultKind;
use crate::launch::Target;
use crate::misuse::misuse;

/// What to verify, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The engine: a URL, or `local:…` for one that is started for this.
    pub engine: String,
    /// Where registers are kept, for an engine that has none.
    pub registers: Option<String>,
    /// For how long there is trouble; checking and cleaning up come on top.
    pub duration: Duration,
    /// What workers do; empty for everything but `lock-set`.
    pub workloads: Vec<Workload>,
    /// What is done to them; `None` for all that can be done to this engine.
    pub faults: Option<Vec<FaultKind>>,
    /// Decides what happens when. The operating system decides the rest.
    pub seed: u64,
    /// The TTL of claims; 1 s unless given, 2 s for `lock-set`.
    pub ttl: Option<Duration>,
    /// Where to write the history, the report and the summary; a folder.
    pub report: Option<PathBuf>,
    /// What worker processes are started from.
    pub helper: HelperProgram,
    /// The command that does this again, for the report.
    pub command: String,
    /// A bug for the workers to suffer from, in builds that have bugs planted.
    pub bug: Option<String>,
}

impl Settings {
    /// The TTL of the claims of most workloads, unless told otherwise.
    pub const TTL: Duration = Duration::from_secs(1);
    /// The TTL of `lock-set`, as in Jepsen's test.
    pub const LOCK_SET_TTL: Duration = Duration::from_secs(2);
    /// How many processes work.
    pub const WORKERS: usize = 5;
    /// How many processes work on `lock-set`, as in Jepsen's test.
    pub const LOCK_SET_WORKERS: usize = 10;
    /// Workers of `lock-set` are stopped for half of every so many TTLs.
    pub const LOCK_SET_PERIOD: u32 = 5;

    /// The same, without what the engine cannot grant; refused if that was asked for by name.
    pub(super) fn suited_to(&self, modes: Modes) -> Result<Self> {
        let lacks = |workload: &Workload| match workload {
            Workload::Rw => (!modes.shared).then_some("shared claims"),
            Workload::Semaphore => (!modes.slots).then_some("slots"),
            _ => None,
        };
        if let Some((workload, lacks)) = self.workloads.iter().find_map(|one| Some((one, lacks(one)?))) {
            misuse!("workload {} cannot be done here: the engine grants no {lacks}", workload.name());
        }
        let mut suited = self.clone();
        if self.workloads.is_empty() {
            suited.workloads = self.common_workloads();
            suited.workloads.retain(|workload| lacks(workload).is_none());
        }
        Ok(suited)
    }

    /// What workers do besides `lock-set`.
    pub(super) fn common_workloads(&self) -> Vec<Workload> {
        let all = || Workload::ALL.to_vec();
        let chosen = if self.workloads.is_empty() { all() } else { self.workloads.clone() };
        chosen.into_iter().filter(|workload| *workload != Workload::LockSet).collect()
    }

    /// What workers do.
    pub(super) fn all_workloads(&self) -> Vec<Workload> {
        let mut workloads = self.common_workloads();
        workloads.extend(self.has_lock_set().then_some(Workload::LockSet));
        workloads
    }

    pub(super) fn has_lock_set(&self) -> bool {
        self.workloads.contains(&Workload::LockSet)
    }

    pub(super) fn common_ttl(&self) -> Duration {
        self.ttl.unwrap_or(Self::TTL)
    }

    pub(super) fn lock_set_ttl(&self) -> Duration {
        self.ttl.unwrap_or(Self::LOCK_SET_TTL)
    }

    /// The longest TTL of this run.
    pub(super) fn longest_ttl(&self) -> Duration {
        if self.has_lock_set() { self.lock_set_ttl().max(self.common_ttl()) } else { self.common_ttl() }
    }

    /// Within which a resource that somebody waits for, and nobody holds, must be granted when
    /// nothing is in the way: what a crash may cost, with what the engine itself is late by, and a second for a
    /// busy machine.
    pub(super) fn progress_bound(&self, target: &dyn Target) -> Duration {
        let ttl = self.longest_ttl();
        ttl + target.lateness(ttl) + Duration::from_secs(1)
    }
}
