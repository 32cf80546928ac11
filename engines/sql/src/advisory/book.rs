use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use palisade_core::{BootInstant, Claim, ClaimId, GoneReason, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::seat::Seat;

/// What this client knows of its own claims: here, that is all there is to know.
#[derive(Debug, Default)]
pub(super) struct Book {
    all: Mutex<All>,
    /// Woken when something was granted that others may have to be shown.
    pub(super) granted: Notify,
    /// Woken when a claim may end sooner than was thought.
    pub(super) sooner: Notify,
}

#[derive(Debug, Default)]
struct All {
    known: HashMap<ClaimId, Known>,
    /// What was granted lately, in that order.
    fresh: VecDeque<(BootInstant, ClaimId)>,
    /// When the next claim lapses, as far as was looked.
    looked_until: Option<BootInstant>,
}

/// A claim of ours.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) claim: Arc<Claim>,
    pub(super) key: i64,
    pub(super) shared: bool,
    pub(super) stand: Stand,
    /// The moment before the last refresh that reached the server was sent.
    refreshed: BootInstant,
    /// Since when it stands so.
    pub(super) since: BootInstant,
    /// Whether others are shown it, or about to be.
    pub(super) noted: bool,
    /// Whether what they are shown is that it waits, though it holds.
    outdated: bool,
    pub(super) value: Option<Bytes>,
    /// Woken when the stand changes; made by the first who waits.
    turn: Option<Arc<Notify>>,
}

/// How a claim stands.
#[derive(Debug, Clone)]
pub(super) enum Stand {
    /// It is being asked for, over this seat if there is one.
    Asked(Option<Arc<Seat>>),
    /// It waits, at this seat.
    Waiting(Arc<Seat>),
    Held(Arc<Seat>, Token),
    /// It is being given back, for this reason.
    Leaving(GoneReason),
    Gone(GoneReason),
}

/// What a claim that is to leave leaves behind.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub(super) id: ClaimId,
    pub(super) seat: Arc<Seat>,
    pub(super) key: i64,
    pub(super) shared: bool,
    pub(super) was: Was,
    pub(super) noted: bool,
    /// Whether it may have been given back already, by somebody who did not wait for the answer.
    pub(super) again: bool,
}

/// How a claim that leaves stood, as far as this client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Was {
    Asked,
    /// It must be kept from coming in.
    Waiting,
    Held,
}

/// What a withdrawal finds.
#[derive(Debug)]
pub(super) enum Leave {
    /// This is to be given back, by whoever asked.
    Take(Left),
    /// Nothing of it has come to the server.
    Nothing,
    /// Somebody else gives it back.
    Moving,
    Gone,
}

impl Known {
    pub(super) fn valid_until(&self) -> BootInstant {
        self.refreshed + self.claim.ttl.as_duration()
    }

    /// Whether it is held, and others are not shown that yet.
    fn is_to_be_noted(&self) -> bool {
        matches!(self.stand, Stand::Held(..)) && (!self.noted || self.outdated)
    }

    fn change(&mut self, stand: Stand) {
        self.stand = stand;
        if let Some(turn) = &self.turn {
            turn.notify_waiters();
        }
    }

    fn left(&self) -> Option<Left> {
        let (seat, was) = match &self.stand {
            Stand::Asked(Some(seat)) => (seat, Was::Asked),
            Stand::Held(seat, _) => (seat, Was::Held),
            Stand::Waiting(seat) => (seat, Was::Waiting),
            Stand::Asked(None) | Stand::Leaving(_) | Stand::Gone(_) => return None,
        };
        let seat = Arc::clone(seat);
        let (id, key, shared, noted) = (self.claim.id, self.key, self.shared, self.noted);
        Some(Left { id, seat, key, shared, was, noted, again: false })
    }
}

impl Book {
    /// Notes a claim that is to be asked for, unless it is known.
    pub(super) fn begin(
        &self,
        claim: &Arc<Claim>,
        key: i64,
        shared: bool,
        now: BootInstant,
    ) -> Option<Known> {
        match self.all.lock().known.entry(claim.id) {
            Entry::Occupied(known) => Some(known.get().clone()),
            Entry::Vacant(vacant) => {
                vacant.insert(Known {
                    claim: Arc::clone(claim),
                    key,
                    shared,
                    stand: Stand::Asked(None),
                    refreshed: now,
                    since: now,
                    noted: false,
                    outdated: false,
                    value: claim.value.clone(),
                    turn: None,
                });
                None
            }
        }
    }

    pub(super) fn get(&self, claim: ClaimId) -> Option<Known> {
        self.all.lock().known.get(&claim).cloned()
    }

    /// Notes over which seat a claim is asked for. `false` if it was withdrawn meanwhile.
    pub(super) fn seated(&self, claim: ClaimId, seat: Option<&Arc<Seat>>) -> bool {
        self.step(claim, |known| match known.stand {
            Stand::Asked(_) => {
                known.stand = Stand::Asked(seat.map(Arc::clone));
                true
            }
            _ => false,
        })
    }

    /// Notes that a claim waits. `false` if it was withdrawn meanwhile.
    pub(super) fn waits(&self, claim: ClaimId, seat: &Arc<Seat>) -> bool {
        let mut all = self.all.lock();
        let Some(known) = all.known.get_mut(&claim) else { return false };
        let waits = matches!(known.stand, Stand::Asked(_));
        if waits {
            known.change(Stand::Waiting(Arc::clone(seat)));
        }
        let ends = known.valid_until();
        if all.looked_until.is_some_and(|until| ends < until) {
            drop(all);
            self.sooner.notify_one();
        }
        waits
    }

    /// Notes a grant; asked for at `since`, unless the claim waited. `None` if it was withdrawn meanwhile.
    pub(super) fn holds(
        &self,
        claim: ClaimId,
        token: Token,
        since: Option<BootInstant>,
        now: BootInstant,
    ) -> Option<Known> {
        let mut all = self.all.lock();
        let known = all.known.get_mut(&claim)?;
        let (Stand::Asked(Some(seat)) | Stand::Waiting(seat)) = &known.stand else { return None };
        let seat = Arc::clone(seat);
        known.refreshed = since.unwrap_or(known.refreshed);
        known.since = now;
        // Corrected if it is held for long: each correction is a commit.
        known.outdated = known.noted;
        known.change(Stand::Held(seat, token));
        let (known, ends) = (known.clone(), known.valid_until());
        all.fresh.push_back((now, claim));
        let (first, sooner) = (all.fresh.len() == 1, all.looked_until.is_some_and(|until| ends < until));
        drop(all);
        if first {
            self.granted.notify_one();
        }
        if sooner {
            self.sooner.notify_one();
        }
        Some(known)
    }

    /// Changes the token of a claim that is held. `false` if it is not.
    pub(super) fn lifted(&self, claim: ClaimId, to: Token) -> bool {
        self.step(claim, |known| match &mut known.stand {
            Stand::Held(_, token) => {
                *token = to;
                true
            }
            _ => false,
        })
    }

    /// Notes that a claim is a reader's from now on.
    pub(super) fn downgraded(&self, claim: ClaimId) {
        self.step(claim, |known| {
            known.shared = true;
            true
        });
    }

    /// Notes another value. `false` if the claim is gone.
    pub(super) fn proclaims(&self, claim: ClaimId, value: Option<Bytes>) -> bool {
        self.step(claim, |known| match known.stand {
            Stand::Held(..) | Stand::Waiting(_) => {
                known.value = value;
                true
            }
            _ => false,
        })
    }

    /// Notes that a claim is about to be shown. `None` if it neither holds nor waits.
    pub(super) fn to_note(&self, claim: ClaimId) -> Option<Known> {
        let mut all = self.all.lock();
        let known = all.known.get_mut(&claim)?;
        if !matches!(known.stand, Stand::Held(..) | Stand::Waiting(_)) {
            return None;
        }
        (known.noted, known.outdated) = (true, false);
        Some(known.clone())
    }

    /// What was granted before `before`, is still held, and was not shown to others as that; and whether more was granted
    /// since.
    pub(super) fn stale(&self, before: BootInstant) -> (Vec<ClaimId>, bool) {
        let mut all = self.all.lock();
        let mut stale = Vec::new();
        while let Some((at, claim)) = all.fresh.front().copied() {
            if at > before {
                return (stale, true);
            }
            all.fresh.pop_front();
            if all.known.get(&claim).is_some_and(Known::is_to_be_noted) {
                stale.push(claim);
            }
        }
        (stale, false)
    }

    /// What is held and was not shown to others as that.
    pub(super) fn unnoted(&self) -> Vec<ClaimId> {
        let all = self.all.lock();
        let unnoted = all.known.values().filter(|known| known.is_to_be_noted());
        unnoted.map(|known| known.claim.id).collect()
    }

    /// Notes that a claim is renewed.
    pub(super) fn refreshed(&self, claim: ClaimId, sent: BootInstant) -> Option<BootInstant> {
        let mut all = self.all.lock();
        let known = all.known.get_mut(&claim)?;
        if !matches!(known.stand, Stand::Held(..) | Stand::Waiting(_)) {
            return None;
        }
        known.refreshed = known.refreshed.max(sent);
        Some(known.valid_until())
    }

    /// Until when a claim that holds or waits does so, as it is.
    pub(super) fn stands_until(&self, claim: ClaimId) -> Option<BootInstant> {
        let all = self.all.lock();
        let known = all.known.get(&claim)?;
        matches!(known.stand, Stand::Held(..) | Stand::Waiting(_)).then(|| known.valid_until())
    }

    /// Begins to give a claim back.
    pub(super) fn leave(&self, claim: ClaimId) -> Leave {
        let mut all = self.all.lock();
        let Some(known) = all.known.get_mut(&claim) else { return Leave::Gone };
        match known.stand {
            Stand::Leaving(_) => Leave::Moving,
            Stand::Gone(_) => Leave::Gone,
            _ => match known.left() {
                Some(left) => {
                    known.change(Stand::Leaving(GoneReason::Withdrawn));
                    Leave::Take(left)
                }
                None => {
                    known.change(Stand::Gone(GoneReason::Withdrawn));
                    Leave::Nothing
                }
            },
        }
    }

    /// Remembers that a claim must not come in any more.
    pub(super) fn bury(&self, claim: &Arc<Claim>, key: i64, now: BootInstant) {
        if self.begin(claim, key, false, now).is_none() {
            self.gone(claim.id, GoneReason::Withdrawn);
        }
    }

    /// Notes that a claim is no more, and why.
    pub(super) fn gone(&self, claim: ClaimId, reason: GoneReason) {
        if let Some(known) = self.all.lock().known.get_mut(&claim) {
            known.change(Stand::Gone(reason));
        }
    }

    /// Forgets a claim; whoever waits for it looks again.
    pub(super) fn forget(&self, claim: ClaimId) {
        if let Some(mut known) = self.all.lock().known.remove(&claim) {
            known.change(Stand::Gone(GoneReason::Withdrawn));
        }
    }

    /// Ends all claims of a seat that is no more; those that were held, and those that others were shown.
    pub(super) fn seat_lost(&self, lost: &Arc<Seat>) -> (Vec<ClaimId>, Vec<ClaimId>) {
        let (mut held, mut noted) = (Vec::new(), Vec::new());
        for known in self.all.lock().known.values_mut() {
            let (Stand::Held(seat, _) | Stand::Waiting(seat)) = &known.stand else { continue };
            if !Arc::ptr_eq(seat, lost) {
                continue;
            }
            if matches!(known.stand, Stand::Held(..)) {
                held.push(known.claim.id);
            }
            if known.noted {
                noted.push(known.claim.id);
            }
            known.change(Stand::Gone(GoneReason::SessionLost));
        }
        (held, noted)
    }

    /// Those that are past their time at `now`, as if they left; and when to look again.
    pub(super) fn lapsed(&self, now: BootInstant) -> (Vec<Left>, BootInstant) {
        /// For how long it is remembered why a claim ended.
        const REMEMBERED: Duration = Duration::from_mins(1);
        let mut all = self.all.lock();
        all.known.retain(|_, known| {
            !matches!(known.stand, Stand::Gone(_)) || known.valid_until() + REMEMBERED > now
        });
        let (mut lapsed, mut next) = (Vec::new(), now + REMEMBERED);
        for known in all.known.values_mut() {
            if !matches!(known.stand, Stand::Held(..) | Stand::Waiting(_)) {
                continue;
            }
            if known.valid_until() > now {
                next = next.min(known.valid_until());
            } else if let Some(left) = known.left() {
                known.change(Stand::Leaving(GoneReason::Expired));
                lapsed.push(left);
            }
        }
        all.looked_until = Some(next);
        (lapsed, next)
    }

    /// What is woken when the claim's stand changes.
    pub(super) fn turn(&self, claim: ClaimId) -> Option<Arc<Notify>> {
        let mut all = self.all.lock();
        let known = all.known.get_mut(&claim)?;
        Some(Arc::clone(known.turn.get_or_insert_with(Arc::default)))
    }

    /// Wakes everyone who waits, to look again.
    pub(super) fn wake_all(&self) {
        self.all
            .lock()
            .known
            .values()
            .filter_map(|known| known.turn.as_ref())
            .for_each(|turn| turn.notify_waiters());
    }

    fn step(&self, claim: ClaimId, change: impl FnOnce(&mut Known) -> bool) -> bool {
        self.all.lock().known.get_mut(&claim).is_some_and(change)
    }
}
