use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Claim, ClaimId, GoneReason, Mode, Name, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::keys::Resource;
use crate::leases::Lease;
use crate::proto::Request;
use crate::txn::delete;

/// What this client knows of its own claims, without asking.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    all: Mutex<All>,
    /// When the first claim lapses that nobody renews, in nanoseconds.
    next_lapse: AtomicU64,
    /// Told when that is sooner than it was.
    pub(crate) sooner: Notify,
}

#[derive(Debug, Default)]
struct All {
    known: HashMap<ClaimId, Known>,
    /// Which keys of a resource and lease are in use, by number.
    tails: HashMap<(Name, i64), BTreeSet<u32>>,
}

#[derive(Debug)]
struct Known {
    claim: Arc<Claim>,
    seat: Seat,
    /// The moment before the last refresh of this very claim was sent.
    refreshed: BootInstant,
    /// Whether an answer was missed: the claim may be on its way still.
    doubtful: bool,
    /// How many deletes of its key may be on their way still.
    leaving: u32,
    stand: Stand,
    /// The end of the key right ahead, as it was when the claim came; until somebody waits by it.
    ahead: Option<String>,
    /// The end of the key of who came right after it, once that is known. Nobody can come between, so it stays that
    /// one until it leaves.
    behind: Option<String>,
    turn: Arc<Notify>,
}

/// Where a claim is at the server.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) lease: Arc<Lease>,
    number: u32,
    /// The end of its keys.
    pub(crate) tail: String,
    /// The revision at which it came, once that is known.
    pub(crate) created: Option<i64>,
    /// Whether its record stands beside it, or may.
    pub(crate) beside: bool,
}

impl Seat {
    /// All that is deleted with the claim.
    pub(crate) fn deletes(&self, resource: &Resource) -> Vec<Request> {
        let lock = delete(resource.lock(&self.tail));
        if self.beside { vec![lock, delete(resource.record(&self.tail))] } else { vec![lock] }
    }
}

/// A delete that is under way.
#[derive(Debug)]
pub(crate) struct Leaving<'a> {
    claims: &'a Claims,
    claim: ClaimId,
}

impl Leaving<'_> {
    /// Notes that it is not under way any more.
    pub(crate) fn answered(self) {
        let mut all = self.claims.all.lock();
        let all = &mut *all;
        let Some(known) = all.known.get_mut(&self.claim) else { return };
        known.leaving = known.leaving.saturating_sub(1);
        if known.leaving == 0 && matches!(known.stand, Stand::Gone(_)) {
            let (resource, seat) = (known.claim.resource.clone(), known.seat.clone());
            all.leave(&resource, &seat);
        }
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
    pub(crate) doubtful: bool,
    pub(crate) stand: Stand,
    /// Until when it stands by its last refresh and its lease's.
    pub(crate) until: BootInstant,
    /// Woken when its stand changes.
    pub(crate) turn: Arc<Notify>,
}

impl Knowledge {
    /// Whether it is there as far as is known, and may go on.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.stand, Stand::Asked | Stand::Waiting | Stand::Held(_))
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
            doubtful: self.doubtful,
            stand: self.stand.clone(),
            until: self.lapses().min(self.seat.lease.until()),
            turn: Arc::clone(&self.turn),
        }
    }

    fn change(&mut self, stand: Stand) {
        self.stand = stand;
        self.turn.notify_waiters();
    }
}

impl All {
    fn seat(&mut self, claim: &Claim, lease: &Arc<Lease>) -> Seat {
        let used = self.tails.entry((claim.resource.clone(), lease.id)).or_default();
        let number = (0..u32::MAX).find(|number| !used.contains(number)).unwrap_or(u32::MAX);
        used.insert(number);
        let tail = tail(lease.id, claim.mode, number);
        let beside = claim.value.is_some();
        Seat { lease: Arc::clone(lease), number, tail, created: None, beside }
    }

    fn leave(&mut self, resource: &Name, seat: &Seat) {
        let key = (resource.clone(), seat.lease.id);
        if let Some(used) = self.tails.get_mut(&key) {
            used.remove(&seat.number);
            if used.is_empty() {
                self.tails.remove(&key);
            }
        }
    }
}

/// The end of a claim's keys. It tells how the claim holds, unless that was changed since.
fn tail(lease: i64, mode: Mode, number: u32) -> String {
    match mode {
        Mode::Exclusive if number == 0 => format!("{lease:x}"),
        Mode::Exclusive => format!("{lease:x}-{number}"),
        Mode::Shared => format!("{lease:x}-s{number}"),
        Mode::Slot { .. } => format!("{lease:x}-p{number}"),
    }
}

/// Whether whoever's key ends like this came to hold alone: all but our own that say otherwise.
pub(crate) fn is_alone(tail: &str) -> bool {
    let shares = |end: &str| {
        let number = end.strip_prefix(['s', 'p']);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    !tail.split_once('-').is_some_and(|(_, end)| shares(end))
}

impl Claims {
    /// Notes a claim before it is sent. One that is known keeps its seat.
    pub(crate) fn asked(&self, claim: &Arc<Claim>, lease: &Arc<Lease>, now: BootInstant) -> Knowledge {
        let mut all = self.all.lock();
        let all = &mut *all;
        if !all.known.contains_key(&claim.id) {
            let seat = all.seat(claim, lease);
            let known = Known {
                claim: Arc::clone(claim),
                seat,
                refreshed: now,
                doubtful: false,
                leaving: 0,
                stand: Stand::Asked,
                ahead: None,
                behind: None,
                turn: Arc::default(),
            };
            self.lapses_at(known.lapses());
            all.known.insert(claim.id, known);
        }
        all.known[&claim.id].knowledge()
    }

    fn lapses_at(&self, at: BootInstant) {
        let next = self.next_lapse.load(Ordering::Relaxed);
        if next == 0 || at.as_nanos() < next {
            self.next_lapse.store(at.as_nanos(), Ordering::Relaxed);
            self.sooner.notify_one();
        }
    }

    /// Gives a claim that never came another seat: its lease is no more, or its key is taken.
    pub(crate) fn reseat(&self, claim: ClaimId, lease: &Arc<Lease>) {
        let mut all = self.all.lock();
        let all = &mut *all;
        let Some(asked) = all.known.get(&claim).map(|known| Arc::clone(&known.claim)) else { return };
        // The old number stays taken until the new one is found.
        let seat = all.seat(&asked, lease);
        if let Some(known) = all.known.get_mut(&claim) {
            let old = std::mem::replace(&mut known.seat, seat);
            all.leave(&asked.resource, &old);
        }
    }

    /// Forgets a claim that never reached the server, or is of no more interest.
    pub(crate) fn forget(&self, claim: ClaimId, reason: GoneReason) {
        let mut all = self.all.lock();
        let Some(mut known) = all.known.remove(&claim) else { return };
        // One that is gone has left its seat, where another may sit by now.
        if !matches!(known.stand, Stand::Gone(_)) {
            known.change(Stand::Gone(reason));
            if known.leaving == 0 {
                all.leave(&known.claim.resource, &known.seat);
            }
        }
    }

    /// Notes that the key of a claim is about to be deleted, whoever's it will be by then. Unless that is
    /// answered, nobody else gets this key while its lease lives. `None` if the claim is not held any more: another
    /// may have its key by now.
    pub(crate) fn leaves(&self, claim: ClaimId) -> Option<Leaving<'_>> {
        let mut all = self.all.lock();
        let known = all.known.get_mut(&claim).filter(|known| matches!(known.stand, Stand::Held(_)))?;
        known.leaving += 1;
        Some(Leaving { claims: self, claim })
    }

    /// Notes that the record of a claim may stand beside it from now on.
    pub(crate) fn stands_beside(&self, claim: ClaimId) {
        if let Some(known) = self.all.lock().known.get_mut(&claim) {
            known.seat.beside = true;
        }
    }

    /// Forgets which keys of a lease that is no more were in use.
    pub(crate) fn lease_is_over(&self, lease: i64) {
        self.all.lock().tails.retain(|(_, of), _| *of != lease);
    }

    pub(crate) fn in_doubt(&self, claim: ClaimId) {
        if let Some(known) = self.all.lock().known.get_mut(&claim) {
            known.doubtful = true;
        }
    }

    /// Notes that a claim is there since a revision.
    pub(crate) fn came(&self, claim: ClaimId, created: i64) {
        if let Some(known) = self.all.lock().known.get_mut(&claim) {
            known.seat.created = Some(created);
            if known.stand == Stand::Asked {
                known.stand = Stand::Waiting;
            }
        }
    }

    /// Notes who was right ahead of a claim when it came.
    pub(crate) fn came_behind(&self, claim: ClaimId, ahead: String) {
        if let Some(known) = self.all.lock().known.get_mut(&claim) {
            known.ahead = Some(ahead);
        }
    }

    /// Who was right ahead of a claim when it came; once.
    pub(crate) fn take_ahead(&self, claim: ClaimId) -> Option<String> {
        self.all.lock().known.get_mut(&claim)?.ahead.take()
    }

    /// Notes who came right after a claim.
    pub(crate) fn is_before(&self, claim: ClaimId, behind: String) {
        if let Some(known) = self.all.lock().known.get_mut(&claim) {
            known.behind = Some(behind);
        }
    }

    /// Who came right after a claim, if that is known.
    pub(crate) fn behind(&self, claim: ClaimId) -> Option<String> {
        self.all.lock().known.get(&claim)?.behind.clone()
    }

    /// Notes a grant. What is gone, or lapses, does not come back.
    pub(crate) fn holds(&self, claim: ClaimId, held: Held) {
        if let Some(known) = self.all.lock().known.get_mut(&claim)
            && matches!(known.stand, Stand::Asked | Stand::Waiting | Stand::Held(_))
        {
            known.change(Stand::Held(held));
        }
    }

    /// Notes that a claim is no more. Returns whether it was held until now.
    pub(crate) fn gone(&self, claim: ClaimId, reason: GoneReason) -> bool {
        let mut all = self.all.lock();
        let all = &mut *all;
        let Some(known) = all.known.get_mut(&claim) else { return false };
        if matches!(known.stand, Stand::Gone(_)) {
            return false;
        }
        let held = matches!(known.stand, Stand::Held(_) | Stand::Lapsed { held: true });
        known.change(Stand::Gone(reason));
        if known.leaving == 0 {
            let (resource, seat) = (known.claim.resource.clone(), known.seat.clone());
            all.leave(&resource, &seat);
        }
        held
    }

    /// Notes that a renewal sent at `sent` reached the server. Returns until when it stands.
    pub(crate) fn refreshed(&self, claim: ClaimId, sent: BootInstant) -> Option<BootInstant> {
        let mut all = self.all.lock();
        let known = all.known.get_mut(&claim)?;
        if matches!(known.stand, Stand::Lapsed { .. } | Stand::Gone(_)) {
            return None;
        }
        known.refreshed = known.refreshed.max(sent);
        Some(known.knowledge().until)
    }

    pub(crate) fn get(&self, claim: ClaimId) -> Option<Knowledge> {
        self.all.lock().known.get(&claim).map(Known::knowledge)
    }

    /// Those that are past their time at `now`, marked as such; and when to look again.
    pub(crate) fn lapsed(&self, now: BootInstant) -> (Vec<Knowledge>, BootInstant) {
        /// For how long it is remembered why a claim ended.
        const REMEMBERED: Duration = Duration::from_mins(1);
        let mut all = self.all.lock();
        all.known
            .retain(|_, known| !matches!(known.stand, Stand::Gone(_)) || known.lapses() + REMEMBERED > now);
        let (mut lapsed, mut next) = (Vec::new(), BootInstant::FAR_FUTURE);
        for known in all.known.values_mut() {
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

    /// Whether a claim that may be alive is on this lease.
    pub(crate) fn uses(&self, lease: i64) -> bool {
        let all = self.all.lock();
        let mut on_it = all.known.values().filter(|known| known.seat.lease.id == lease);
        on_it.any(|known| known.doubtful || !matches!(known.stand, Stand::Gone(_)))
    }

    /// All claims on a lease.
    pub(crate) fn of_lease(&self, lease: i64) -> Vec<ClaimId> {
        let all = self.all.lock();
        all.known.iter().filter(|(_, known)| known.seat.lease.id == lease).map(|(id, _)| *id).collect()
    }

    /// All claims that are alive as far as is known.
    pub(crate) fn live(&self) -> Vec<ClaimId> {
        let all = self.all.lock();
        all.known
            .iter()
            .filter(|(_, known)| !matches!(known.stand, Stand::Gone(_)))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Wakes everyone who waits, to look again.
    pub(crate) fn wake_all(&self) {
        self.all.lock().known.values().for_each(|known| known.turn.notify_waiters());
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Clock, Owner, SystemClock, Ttl};

    use super::*;

    fn held(claims: &Claims, lease: &Arc<Lease>) -> Arc<Claim> {
        let owner = Arc::new(Owner::this_process());
        let claim = Arc::new(Claim::new(Name::new("a").unwrap(), Mode::Exclusive, Ttl::default(), owner));
        claims.asked(&claim, lease, SystemClock.now());
        claims.came(claim.id, 1);
        claims.holds(claim.id, Held { token: Token::new(1).unwrap(), slot: None });
        claim
    }

    fn seat(claims: &Claims, claim: &Claim) -> String {
        claims.get(claim.id).unwrap().seat.tail
    }

    #[test]
    fn nobody_sits_where_a_delete_may_yet_arrive() {
        let (claims, lease) = (Claims::default(), Arc::new(Lease::of(0x7c)));
        let answered = held(&claims, &lease);
        assert_eq!(seat(&claims, &answered), "7c");
        claims.leaves(answered.id).unwrap().answered();
        claims.forget(answered.id, GoneReason::Withdrawn);
        let doubted = held(&claims, &lease);
        assert_eq!(seat(&claims, &doubted), "7c", "a key is used again");
        assert!(claims.leaves(doubted.id).is_some());
        // The second delete is answered; the first may be on its way still.
        claims.leaves(doubted.id).unwrap().answered();
        claims.forget(doubted.id, GoneReason::Withdrawn);
        assert_eq!(seat(&claims, &held(&claims, &lease)), "7c-1");
        claims.lease_is_over(lease.id);
        assert!(claims.all.lock().tails.is_empty());
    }

    #[test]
    fn what_is_gone_is_not_deleted_by_its_key() {
        let (claims, lease) = (Claims::default(), Arc::new(Lease::of(0x7c)));
        let evicted = held(&claims, &lease);
        claims.gone(evicted.id, GoneReason::Unknown);
        assert!(claims.leaves(evicted.id).is_none());
        // One that ends while its delete is under way leaves its seat with the answer.
        let other = held(&claims, &lease);
        let leaving = claims.leaves(other.id).unwrap();
        claims.gone(other.id, GoneReason::Unknown);
        assert_eq!(seat(&claims, &held(&claims, &lease)), "7c-1");
        leaving.answered();
        assert_eq!(seat(&claims, &held(&claims, &lease)), "7c");
    }

    #[test]
    fn of_two_deletes_the_first_answer_frees_nothing() {
        let (claims, lease) = (Claims::default(), Arc::new(Lease::of(0x7c)));
        let twice = held(&claims, &lease);
        let (one, _on_its_way) = (claims.leaves(twice.id).unwrap(), claims.leaves(twice.id).unwrap());
        one.answered();
        claims.forget(twice.id, GoneReason::Withdrawn);
        assert_eq!(seat(&claims, &held(&claims, &lease)), "7c-1", "the other would delete it");
    }

    #[test]
    fn a_key_tells_how_its_claim_holds() {
        for number in [0, 7] {
            assert!(is_alone(&tail(0x7c, Mode::Exclusive, number)));
            assert!(!is_alone(&tail(0x7c, Mode::Shared, number)));
            assert!(!is_alone(&tail(0x7c, Mode::Slot { of: 2 }, number)));
        }
        assert!(is_alone("694d8f2a"), "as other clients have it");
        assert!(is_alone("x-some"), "whatever else it is");
    }
}
