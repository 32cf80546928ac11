//! Real bugs of other libraries, to be suffered by workers: `palisade verify` must find each.
//!
//! They exist in builds with the feature `planted-bugs` only, which no released program has. An
//! engine adds its own here when it has ways to be wrong that others have not.

#[cfg(feature = "planted-bugs")]
mod claims;
#[cfg(feature = "planted-bugs")]
mod layer;
#[cfg(feature = "planted-bugs")]
mod naive;

use anyhow::Result;
use palisade::Client;

use super::worker::Spec;

/// Declares the bugs: name on the outside, which library had it, and the way to provoke it.
#[cfg(feature = "planted-bugs")]
macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident, $name:literal, $workload:ident, [$($fault:ident),*], $checkers:expr;)*) => {
        /// A planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Bug { $($(#[$doc])* $bug,)* }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)* }
            }

            /// What workers have to do for it to show.
            pub const fn workload(self) -> super::Workload {
                match self { $(Self::$bug => super::Workload::$workload,)* }
            }

            /// What has to be done to them for it to show.
            pub const fn faults(self) -> &'static [crate::history::FaultKind] {
                match self { $(Self::$bug => &[$(crate::history::FaultKind::$fault,)*],)* }
            }

            /// The checkers of which one at least must find it.
            pub const fn found_by(self) -> &'static [&'static str] {
                match self { $(Self::$bug => $checkers,)* }
            }
        }
    };
}

#[cfg(feature = "planted-bugs")]
bugs! {
    /// A lock with a TTL and nothing else: no token, no deadline, no owner checked on release. The
    /// README recipe of half the internet; Jepsen's `lock-set` catches it.
    NaiveTtlLock, "naive-ttl-lock", LockSet, [], &["lost", "belief"];
    /// The holder believes in its lock until somebody tells it otherwise (hashicorp/consul#18271).
    DeadlineIgnored, "deadline-ignored", Mutex, [Pause], &["belief"];
    /// A waiter whose claim expired while it queued is handed the lock (etcd-io/etcd#11456).
    ExpiredWaiterGranted, "expired-waiter-granted", Mutex, [Pause], &["belief", "linear"];
    /// A wake-up is taken for the grant (redisson/redisson#1763 the other way round).
    WakeUpBelieved, "wake-up-believed", Mutex, [], &["belief", "linear"];
    /// Now and then a wake-up does not arrive, and nobody looks again (kragniz/python-etcd3).
    WakeUpLost, "wake-up-lost", Mutex, [], &["progress"];
    /// A bare DEL: a late release frees whoever holds by then (redis docs; row 37).
    ReleasesAnyone, "releases-anyone", Mutex, [Pause], &["stolen"];
    /// Renewal goes on after the release and keeps the lock for ever (redisson/redisson#7272).
    RenewedAfterRelease, "renewed-after-release", Mutex, [], &["progress", "leaks"];
    /// Renewals are answered and not made (redisson/redisson#5698: the watchdog stops unseen).
    RenewedOnPaper, "renewed-on-paper", Mutex, [], &["belief", "linear"];
    /// A cancelled acquire leaves its claim behind, renewed (rustfs/rustfs#2795, redis/redis-py#3847).
    CancelLeaks, "cancel-leaks", Mutex, [Cancel], &["progress", "leaks"];
    /// Two tasks of one process share one key, and both own it (etcd-io/etcd#11391).
    OwnershipShared, "ownership-shared", Mutex, [], &["belief", "tokens", "linear"];
    /// First a look, then the lock: two who look at once both come in (`ShedLock` without an atomic update).
    CheckThenAct, "check-then-act", Mutex, [], &["belief", "linear"];
    /// Tokens are counted per process, and start anew with it (jepsen.io on Hazelcast 3.8.3: ids not unique).
    TokenPerProcess, "token-per-process", Mutex, [Kill], &["tokens", "linear"];
    /// Readers come in beside a writer (etcd-io/etcd#16221, the read-write recipe).
    ReaderBesideWriter, "reader-beside-writer", Rw, [], &["belief", "linear"];
    /// One permit too many (redisson/redisson#2099 and its like: counts that drift).
    PermitTooMany, "permit-too-many", Semaphore, [], &["belief", "linear"];
    /// Two leaders after a leader stood still (apache/curator#1211).
    TwoLeaders, "two-leaders", Election, [Pause], &["belief"];
    /// Tokens are handed out and nobody checks them (sofa-jraft#182: "a token nobody checks is useless").
    FenceIgnored, "fence-ignored", LockSet, [], &["lost", "fenced"];
    /// The fence is raised by writes only, so that an old write can come between read and write
    /// (the `FizzBee` model of fencing).
    FenceNotRaisedByReading, "fence-not-raised-by-reading", LockSet, [], &["lost"];
    /// The version is compared, and then the value is written: two steps.
    TornWrite, "torn-write", Register, [], &["linear", "fenced"];
    /// Reads come from a copy that lags (CURATOR-653: a stale follower believed).
    StaleRead, "stale-read", Register, [], &["linear"];
    /// Some writes are acknowledged and not made (Redis-Raft 1b3fbf6: lost on failover).
    AcknowledgedUnwritten, "acknowledged-unwritten", Register, [], &["linear", "fenced"];
}

/// Makes a worker suffer from the bug it was told to.
#[cfg(feature = "planted-bugs")]
pub(super) fn plant(spec: &Spec, client: Client) -> Result<Client> {
    use anyhow::Context;
    let Some(name) = &spec.bug else { return Ok(client) };
    let bug = Bug::ALL.iter().find(|bug| bug.name() == name).context("there is no such bug")?;
    layer::over(*bug, spec, client)
}

/// Released programs have no bugs planted.
#[cfg(not(feature = "planted-bugs"))]
pub(super) fn plant(spec: &Spec, client: Client) -> Result<Client> {
    match &spec.bug {
        None => Ok(client),
        Some(bug) => crate::misuse::misuse!("this build has no bugs planted, not even {bug:?}"),
    }
}
