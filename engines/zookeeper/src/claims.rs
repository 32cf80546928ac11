use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Claim, ClaimId, GoneReason, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::session::Session;

/// What this client knows of its own claims, without asking.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    all: Mutex<HashMap<ClaimId, Known>>,
    /// When the first claim lapses that nobody renews, in nanoseconds.
    next_lapse: AtomicU64,
    /// Told when that is sooner than it was.
    pub(crate) sooner: Notify,
}

#[derive(Debug)]
struct Known {
    claim: Arc<Claim>,
    seat: Seat,
    /// Keeps the session busy with proving that it lives.
    ride: Option<Ride>,
    /// The moment before the last refresh of this very claim was sent.
    refreshed: BootInstant,
    stand: Stand,
    /// The name of the node right ahead, as it was when the claim came; until somebody waits by it.
    ahead: Option<String>,
    turn: Arc<Notify>,
    gate: Arc<tokio::sync::Mutex<()>>,
}

/// Where a claim is at the servers.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) session: Arc<Session>,
    /// Its node, once that is known: before, it may be there, or on its way.
    pub(crate) node: Option<SeatNode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeatNode {
    /// What it is called in its folder.
    pub(crate) name: String,
    /// The transaction that made it.
    pub(crate) created: i64,
}

#[derive(Debug)]
struct Ride(Arc<Session>);

impl Ride {
    fn on(session: &Arc<Session>) -> Self {
        session.carries.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(session))
    }
}

impl Drop for Ride {
    fn drop(&mut self) {
        self.0.carries.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a claim stands, as far as this client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It was sent; no answer yet.
    Asked,
    Waiting,
    Held(Held),
    /// It was not renewed in time, and is being deleted.
    Lapsed {
        held: bool,
    },
    Gone(GoneReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) token: Token,
    pub(crate) slot: Option<u32>,
}

/// All that is known of one claim.
#[derive(Debug, Clone)]
pub(crate) struct Knowledge {
    pub(crate) claim: Arc<Claim>,
    pub(crate) seat: Seat,
    pub(crate) stand: Stand,
    /// Until when it stands by its last refresh and its session's life.
    pub(crate) until: BootInstant,
    /// Woken when its stand changes.
    pub(crate) turn: Arc<Notify>,
    /// Held by whoever sends or takes away its node, so that the later one finds what the earlier one left.
    pub(crate) gate: Arc<tokio::sync::Mutex<()>>,
}

impl Knowledge {
    /// Whether it is there as far as is known, and may go on.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.stand, Stand::Asked | Stand::Waiting | Stand::Held(_))
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.stand, Stand::Gone(_))
    }
}

impl Known {
    fn lapses(&self) -> BootInstant {
        self.refreshed + self.claim.ttl.as_duration()
    }

    fn knowledge(&self) -> Knowledge {
        Knowledge {
            claim: Arc::clone(&self.claim),
            seat: self.seat.clone(),
            stand: self.stand.clone(),
            until: self.lapses().min(self.seat.session.until()),
            turn: Arc::clone(&self.turn),
            gate: Arc::clone(&self.gate),
        }
    }

    fn change(&mut self, stand: Stand) {
        if matches!(stand, Stand::Gone(_)) {
            self.ride = None;
        }
        self.stand = stand;
        self.turn.notify_waiters();
    }
}

impl Claims {
    /// Notes a claim before it is sent. One that is known keeps its seat.
    ///
    /// Returns also whether it was not known.
    pub(crate) fn asked(
        &self,
        claim: &Arc<Claim>,
        session: &Arc<Session>,
        now: BootInstant,
    ) -> (Knowledge, bool) {
        let mut all = self.all.lock();
        let fresh = !all.contains_key(&claim.id);
        let known = all.entry(claim.id).or_insert_with(|| {
            let known = Known {
                claim: Arc::clone(claim),
                seat: Seat { session: Arc::clone(session), node: None },
                ride: Some(Ride::on(session)),
                refreshed: now,
                stand: Stand::Asked,
                ahead: None,
                turn: Arc::default(),
                gate: Arc::default(),
            };
            self.lapses_at(known.lapses());
            known
        });
        (known.knowledge(), fresh)
    }

    fn lapses_at(&self, at: BootInstant) {
        let next = self.next_lapse.load(Ordering::Relaxed);
        if next == 0 || at.as_nanos() < next {
            self.next_lapse.store(at.as_nanos(), Ordering::Relaxed);
            self.sooner.notify_one();
        }
    }

    /// Forgets a claim that is not at the servers, or is of no more interest.
    pub(crate) fn forget(&self, claim: ClaimId, reason: GoneReason) {
        if let Some(mut known) = self.all.lock().remove(&claim)
            && !matches!(known.stand, Stand::Gone(_))
        {
            known.change(Stand::Gone(reason));
        }
    }

    /// Notes that a claim must not come (back), even if it was never heard of.
    pub(crate) fn withdrawn(&self, claim: &Arc<Claim>, session: &Arc<Session>, now: BootInstant) {
        self.asked(claim, session, now);
        self.gone(claim.id, GoneReason::Withdrawn);
    }

    /// Notes that a claim is there.
    pub(crate) fn came(&self, claim: ClaimId, node: SeatNode) {
        if let Some(known) = self.all.lock().get_mut(&claim) {
            known.seat.node = Some(node);
            if known.stand == Stand::Asked {
                known.stand = Stand::Waiting;
            }
        }
    }

    /// Notes who was right ahead of a claim when it came.
    pub(crate) fn came_behind(&self, claim: ClaimId, ahead: String) {
        if let Some(known) = self.all.lock().get_mut(&claim) {
            known.ahead = Some(ahead);
        }
    }

    /// Who was right ahead of a claim when it came; once.
    pub(crate) fn take_ahead(&self, claim: ClaimId) -> Option<String> {
        self.all.lock().get_mut(&claim)?.ahead.take()
    }

    /// Notes a grant. What is gone, or lapses, does not come back.
    pub(crate) fn holds(&self, claim: ClaimId, held: Held) {
        if let Some(known) = self.all.lock().get_mut(&claim)
            && matches!(known.stand, Stand::Asked | Stand::Waiting | Stand::Held(_))
        {
            known.change(Stand::Held(held));
        }
    }

    /// Notes that a claim is no more. Returns whether it was held until now.
    pub(crate) fn gone(&self, claim: ClaimId, reason: GoneReason) -> bool {
        let mut all = self.all.lock();
        let Some(known) = all.get_mut(&claim) else { return false };
        if matches!(known.stand, Stand::Gone(_)) {
            return false;
        }
        let held = matches!(known.stand, Stand::Held(_) | Stand::Lapsed { held: true });
        known.change(Stand::Gone(reason));
        held
    }

    /// Notes that a renewal sent at `sent` reached the servers. Returns until when it stands.
    pub(crate) fn refreshed(&self, claim: ClaimId, sent: BootInstant) -> Option<BootInstant> {
        let mut all = self.all.lock();
        let known = all.get_mut(&claim)?;
        if matches!(known.stand, Stand::Lapsed { .. } | Stand::Gone(_)) {
            return None;
        }
        known.refreshed = known.refreshed.max(sent);
        Some(known.knowledge().until)
    }

    pub(crate) fn get(&self, claim: ClaimId) -> Option<Knowledge> {
        self.all.lock().get(&claim).map(Known::knowledge)
    }

    /// Those that are past their time at `now`, marked as such; and when to look again.
    pub(crate) fn lapsed(&self, now: BootInstant) -> (Vec<Knowledge>, BootInstant) {
        /// For how long it is remembered why a claim ended.
        const REMEMBERED: Duration = Duration::from_mins(1);
        let mut all = self.all.lock();
        all.retain(|_, known| !matches!(known.stand, Stand::Gone(_)) || known.lapses() + REMEMBERED > now);
        let (mut lapsed, mut next) = (Vec::new(), BootInstant::FAR_FUTURE);
        for known in all.values_mut() {
            match known.stand {
                Stand::Lapsed { .. } => {}
                Stand::Gone(_) => next = next.min(known.lapses() + REMEMBERED),
                Stand::Asked | Stand::Waiting | Stand::Held(_) if known.lapses() <= now => {
                    // Whoever waits is told when it is deleted.
                    known.stand = Stand::Lapsed { held: matches!(known.stand, Stand::Held(_)) };
                    lapsed.push(known.knowledge());
                }
                Stand::Asked | Stand::Waiting | Stand::Held(_) => next = next.min(known.lapses()),
            }
        }
        self.next_lapse.store(next.as_nanos(), Ordering::Relaxed);
        (lapsed, next)
    }

    /// All claims of a session that are alive as far as is known.
    pub(crate) fn of_session(&self, session: &Arc<Session>) -> Vec<Knowledge> {
        let all = self.all.lock();
        let on_it = all.values().filter(|known| Arc::ptr_eq(&known.seat.session, session));
        on_it.filter(|known| !matches!(known.stand, Stand::Gone(_))).map(Known::knowledge).collect()
    }

    /// Wakes everyone who waits, to look again.
    pub(crate) fn wake_all(&self) {
        self.all.lock().values().for_each(|known| known.turn.notify_waiters());
    }
}
