//! Engines that are wrong on purpose, to show that the suite sees it.
//!
//! Each [`Fault`] is one bug that a real engine has had or could have; everything else is the
//! memory engine. A suite over a [`BrokenFixture`] must fail.

mod engine;
mod forge;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use palisade_core::memory::MemoryStore;
use palisade_core::{Claim, ClaimId, Engine, Entry, Name, Result};
use parking_lot::Mutex;

use self::engine::Broken;
use crate::Fixture;

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident,)*) => {
        /// What is wrong with the engine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault { $($(#[$doc])* $fault,)* }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$fault,)*];
        }
    };
}

faults! {
    /// A claim that should wait is told it holds.
    DoubleGrant,
    /// The same, but only when two claims ask at the same moment: one in eight.
    RareDoubleGrant,
    /// Two grants in a row carry the same token.
    TokenReused,
    /// A resource that was free in between starts to count anew.
    TokenForgotten,
    /// A TTL is accepted and never enforced.
    ExpiryLost,
    /// A withdrawal frees whoever holds, as a bare `DEL key` does.
    ForeignRelease,
    /// One waiter in eight is never told.
    LostWakeup,
    /// All waiters are told that they hold when anything changes.
    WakeupBelieved,
    /// A waiter that withdraws stays in the queue.
    WaiterLeaked,
    /// A reader comes in past a waiting writer.
    OvertakesQueue,
    /// A claim that will not wait is turned away, and queued all the same.
    BusyLeavesClaim,
    /// Asking again is taken for a new grant.
    AskedAgainCountsAnew,
    /// Renewing a claim that is gone brings it back.
    RevivesExpired,
    /// Renewing a waiter moves it to the end.
    RenewalLosesPlace,
    /// Renewals are answered in another order.
    RenewalsOutOfOrder,
    /// The holder is told a later end than the engine honours.
    DeadlineTooLate,
    /// Two holders get the same slot.
    SlotTwice,
    /// A downgrade frees the resource for a moment.
    DowngradeGap,
    /// A reader may become a writer.
    UpgradeAllowed,
    /// An evicted holder is not told.
    EvictUntold,
    /// An eviction ends every claim of the same client.
    EvictsSession,
    /// Inspections leave waiters out.
    WaitersHidden,
    /// Pages repeat their last resource.
    PageRepeats,
    /// A watch leaves out every second event, the latest too.
    WatchMisses,
    /// Names that differ in case only are one.
    NamesFolded,
    /// Names are cut after 64 bytes.
    NamesCut,
    /// All namespaces are one.
    NamespacesShared,
    /// A register takes any token.
    StaleTokenAccepted,
    /// Opening a register does not raise its fence.
    OpeningDoesNotFence,
    /// All slots share one fence.
    SlotsShareFence,
    /// A deleted register starts anew.
    VersionComesBack,
    /// The version is compared first and the value written later.
    TornWrite,
    /// Reads come from a copy that lags one write behind.
    StaleRead,
    /// Values outlive their expiry.
    RegisterExpiryLost,
    /// A closed connection still answers.
    ClosedStillServes,
}

/// What all connections of a broken engine share.
#[derive(Debug, Default)]
struct Shared {
    /// Every claim that was ever asked for.
    claims: Mutex<HashMap<ClaimId, Arc<Claim>>>,
    /// How often a register was deleted, by name.
    lives: Mutex<HashMap<Name, u32>>,
    /// What a lagging copy of a register shows.
    copies: Mutex<HashMap<(String, Name), [Entry; 2]>>,
    /// Counts whatever a fault does only now and then.
    count: AtomicU64,
}

/// A memory engine with one fault, under test.
#[derive(Debug)]
pub struct BrokenFixture {
    store: MemoryStore,
    fault: Fault,
    name: String,
    shared: Arc<Shared>,
}

impl BrokenFixture {
    /// An empty engine with this fault.
    pub fn new(fault: Fault) -> Self {
        Self { store: MemoryStore::default(), fault, name: format!("{fault:?}"), shared: Arc::default() }
    }
}

#[async_trait]
impl Fixture for BrokenFixture {
    fn name(&self) -> &str {
        &self.name
    }

    async fn connect(&self, namespace: &str) -> Result<Arc<dyn Engine>> {
        let inside = if self.fault == Fault::NamespacesShared { "all" } else { namespace };
        Ok(Arc::new(Broken {
            inner: self.store.connect(inside),
            namespace: namespace.to_owned(),
            fault: self.fault,
            shared: Arc::clone(&self.shared),
        }))
    }

    fn short_ttl(&self) -> Duration {
        Duration::from_millis(150)
    }

    // Short, because a hung step is what many faults look like.
    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn effort(&self) -> u32 {
        20
    }
}
