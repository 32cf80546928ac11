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
use palisade_core::{Claim, ClaimId, Clock, Engine, Entry, Name, Result, SystemClock};
use parking_lot::Mutex;

use self::engine::Broken;
use crate::Fixture;

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident => $case:literal,)*) => {
        /// What is wrong with the engine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault { $($(#[$doc])* $fault,)* }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$fault,)*];

            /// The case that was written against it, which must fail; others may fail too.
            pub fn caught_by(self) -> &'static str {
                match self { $(Self::$fault => $case,)* }
            }
        }
    };
}

faults! {
    /// A claim that should wait is told it holds.
    DoubleGrant => "claims::a_held_resource_keeps_others_out/mutex",
    /// The same, but only when two claims ask at the same moment: one in eight.
    RareDoubleGrant => "waiting::no_wake_up_is_lost/mutex",
    /// Two grants in a row carry the same token.
    TokenReused => "tokens::they_rise_across_hand_overs/mutex",
    /// A resource that was free in between starts to count anew.
    TokenForgotten => "tokens::they_rise_from_grant_to_grant/mutex",
    /// A TTL is accepted and never enforced.
    ExpiryLost => "waiting::expiry_hands_over_and_not_before/mutex",
    /// A withdrawal frees whoever holds, as a bare `DEL key` does.
    ForeignRelease => "withdraw::an_expired_holder_cannot_free_its_successor/mutex",
    /// One waiter in eight is never told.
    LostWakeup => "waiting::no_wake_up_is_lost/mutex",
    /// All waiters are told that they hold when anything changes.
    WakeupBelieved => "waiting::a_grant_is_checked_before_it_is_said/mutex",
    /// A waiter that withdraws stays in the queue.
    WaiterLeaked => "withdraw::it_can_be_repeated/mutex",
    /// A reader comes in past a waiting writer.
    OvertakesQueue => "claims::a_reader_does_not_overtake_a_writer",
    /// A claim that will not wait is turned away, and queued all the same.
    BusyLeavesClaim => "claims::busy_says_who_holds_and_leaves_nothing/mutex",
    /// Asking again is taken for a new grant.
    AskedAgainCountsAnew => "claims::asked_again_it_answers_the_same/mutex",
    /// Claims asked for together are answered in another order.
    TogetherOutOfOrder => "claims::asked_together_each_gets_its_own_answer/mutex",
    /// One claim that fails has all fail that are asked for together.
    TogetherFailsAsOne => "claims::asked_together_one_fails_alone",
    /// Claims asked for together go out under ids that a caller who leaves does not know.
    TogetherLeaks => "cancel::claims_dropped_together_can_be_withdrawn/mutex",
    /// Renewing a claim that is gone brings it back.
    RevivesExpired => "renewal::an_expired_claim_is_never_brought_back/mutex",
    /// Renewing a waiter moves it to the end.
    RenewalLosesPlace => "renewal::a_renewed_waiter_keeps_its_place",
    /// Renewals are answered in another order.
    RenewalsOutOfOrder => "renewal::answers_come_in_the_order_asked",
    /// The holder is told a later end than the engine honours.
    DeadlineTooLate => "waiting::expiry_hands_over_and_not_before/mutex",
    /// Two holders get the same slot.
    SlotTwice => "claims::slots_are_counted_and_numbered",
    /// A downgrade frees the resource for a moment.
    DowngradeGap => "change::a_downgrade_lets_no_writer_in",
    /// A reader may become a writer.
    UpgradeAllowed => "change::an_upgrade_is_refused",
    /// An evicted holder is not told.
    EvictUntold => "evict::the_holder_is_told_and_the_next_comes_in/mutex",
    /// An eviction ends every claim of the same client.
    EvictsSession => "evict::only_this_claim_ends",
    /// Inspections leave waiters out.
    WaitersHidden => "inspect::holders_and_waiters_are_shown/mutex",
    /// Pages repeat their last resource.
    PageRepeats => "inspect::pages_lead_on",
    /// A watch leaves out every second event, the latest too.
    WatchMisses => "watch::the_latest_state_is_told",
    /// Names that differ in case only are one.
    NamesFolded => "names::hostile_names_stay_apart",
    /// Names are cut after 64 bytes.
    NamesCut => "names::hostile_names_stay_apart",
    /// All namespaces are one.
    NamespacesShared => "names::namespaces_stay_apart",
    /// A register takes any token.
    StaleTokenAccepted => "fences::a_stale_token_is_refused",
    /// Opening a register does not raise its fence.
    OpeningDoesNotFence => "fences::raising_shuts_older_tokens_out",
    /// All slots share one fence.
    SlotsShareFence => "fences::slots_are_fenced_apart",
    /// A deleted register starts anew.
    VersionComesBack => "registers::versions_never_come_back",
    /// The version is compared first and the value written later.
    TornWrite => "registers::no_increment_is_lost",
    /// Reads come from a copy that lags one write behind.
    StaleRead => "registers::reads_are_fresh",
    /// Values outlive their expiry.
    RegisterExpiryLost => "registers::a_value_expires_and_not_before",
    /// A closed connection still answers.
    ClosedStillServes => "connection::a_closed_connection_says_so",
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
    clock: Arc<dyn Clock>,
}

impl BrokenFixture {
    /// An empty engine with this fault.
    pub fn new(fault: Fault) -> Self {
        Self::on_clock(fault, Arc::new(SystemClock))
    }

    /// The same with a time of its own, for simulations.
    pub(crate) fn on_clock(fault: Fault, clock: Arc<dyn Clock>) -> Self {
        let store = MemoryStore::new(Arc::clone(&clock));
        Self { store, fault, name: format!("{fault:?}"), shared: Arc::default(), clock }
    }

    /// A new connection.
    pub(crate) fn open(&self, namespace: &str) -> Arc<dyn Engine> {
        let inside = if self.fault == Fault::NamespacesShared { "all" } else { namespace };
        Arc::new(Broken {
            inner: self.store.connect(inside),
            namespace: namespace.to_owned(),
            fault: self.fault,
            shared: Arc::clone(&self.shared),
            clock: Arc::clone(&self.clock),
        })
    }
}

#[async_trait]
impl Fixture for BrokenFixture {
    fn name(&self) -> &str {
        &self.name
    }

    async fn connect(&self, namespace: &str) -> Result<Arc<dyn Engine>> {
        Ok(self.open(namespace))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_case_written_against_it() {
        let cases = crate::cases();
        for fault in Fault::ALL {
            assert!(cases.iter().any(|case| case.name == fault.caught_by()), "{fault:?}");
        }
    }
}
