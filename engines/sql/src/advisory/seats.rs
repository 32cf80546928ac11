use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, ClaimId, Clock, SystemClock};
use parking_lot::Mutex;

use super::seat::Seat;

/// The connections of a client, and what each is used for.
#[derive(Debug, Default)]
pub(super) struct Seats {
    places: Mutex<Places>,
    made: AtomicU64,
}

#[derive(Debug, Default)]
struct Places {
    all: Vec<Place>,
    /// How many are being made.
    coming: usize,
}

#[derive(Debug)]
struct Place {
    seat: Arc<Seat>,
    /// After how long a silence the server ends it: the TTL of all claims on it.
    ttl: Duration,
    /// What is asked for, held or given back over it. Never twice: a session has what it takes twice, twice.
    keys: HashMap<i64, ClaimId>,
    /// Whether it waits for a lock, so that nothing else can be asked over it.
    waits: bool,
    used: BootInstant,
}

impl Place {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.waits
    }

    /// Whether it does not answer, although it should.
    fn hangs(&self) -> bool {
        const LONG: Duration = Duration::from_secs(1);
        self.seat.calls() > 0 && self.seat.silent() > LONG
    }
}

/// What is to be done to have a place.
#[derive(Debug)]
pub(super) enum Found {
    /// It is there.
    Seat(Arc<Seat>),
    /// It is there, and ends after another silence than is wanted.
    Retimed(Arc<Seat>),
    /// One is to be made; announced with [`Seats::coming`].
    Make,
    /// There are as many as may be.
    Full,
}

/// What to do about a seat that nothing was heard of for a while.
#[derive(Debug, Default)]
pub(super) struct Care {
    pub(super) beat: Vec<Arc<Seat>>,
    pub(super) end: Vec<Arc<Seat>>,
    pub(super) again_in: Duration,
}

impl Seats {
    /// A number for the next one.
    pub(super) fn number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// Finds a place over which `key` can be asked for beside others.
    pub(super) fn share(&self, (key, claim): (i64, ClaimId), ttl: Duration, most: usize) -> Found {
        let mut places = self.places.lock();
        let fit = |place: &&mut Place| {
            !place.waits && place.ttl == ttl && !place.keys.contains_key(&key) && !place.seat.has_ended()
        };
        let fitting = places.all.iter_mut().filter(fit).filter(|place| !place.hangs());
        if let Some(place) = fitting.min_by_key(|place| place.seat.calls_ahead()) {
            place.keys.insert(key, claim);
            place.used = SystemClock.now();
            return Found::Seat(Arc::clone(&place.seat));
        }
        places.empty((key, claim), ttl, false, most)
    }

    /// Finds a place to wait for `key` at, where nothing else is.
    pub(super) fn own(&self, asked: (i64, ClaimId), ttl: Duration, most: usize) -> Found {
        self.places.lock().empty(asked, ttl, true, most)
    }

    /// The claims of this client that hold `key`, wait for it, or are on their way.
    pub(super) fn on(&self, key: i64) -> Vec<ClaimId> {
        self.places.lock().all.iter().filter_map(|place| place.keys.get(&key).copied()).collect()
    }

    /// Notes one that was made for `key`.
    pub(super) fn made(&self, seat: &Arc<Seat>, asked: Option<(i64, ClaimId)>, ttl: Duration, waits: bool) {
        let mut places = self.places.lock();
        places.coming = places.coming.saturating_sub(1);
        let keys = asked.into_iter().collect();
        places.all.push(Place { seat: Arc::clone(seat), ttl, keys, waits, used: SystemClock.now() });
    }

    /// Notes that none was made.
    pub(super) fn not_made(&self) {
        let mut places = self.places.lock();
        places.coming = places.coming.saturating_sub(1);
    }

    /// Notes that what was waited for is held.
    pub(super) fn came_in(&self, seat: &Arc<Seat>) {
        if let Some(place) = self.places.lock().of(seat) {
            place.waits = false;
        }
    }

    /// Notes that `key` is neither held over a seat nor waited for.
    pub(super) fn free(&self, seat: &Arc<Seat>, key: i64) {
        if let Some(place) = self.places.lock().of(seat) {
            place.keys.remove(&key);
            place.waits = false;
            place.used = SystemClock.now();
        }
    }

    pub(super) fn remove(&self, seat: &Arc<Seat>) {
        self.places.lock().all.retain(|place| !Arc::ptr_eq(&place.seat, seat));
    }

    /// Ends all; those that waited.
    pub(super) fn end_all(&self) -> Vec<Arc<Seat>> {
        let places = self.places.lock();
        places.all.iter().for_each(|place| place.seat.end());
        places.all.iter().filter(|place| place.waits).map(|place| Arc::clone(&place.seat)).collect()
    }

    /// What must be done now so that no session ends for its silence, and none is kept for nothing.
    pub(super) fn care(&self) -> Care {
        /// A connection that nobody needs is kept for a while: making one takes milliseconds.
        const SPARE: Duration = Duration::from_secs(5);
        let now = SystemClock.now();
        let mut places = self.places.lock();
        let mut care = Care { again_in: Duration::from_secs(1), ..Care::default() };
        let mut at = 0;
        places.all.retain(|place| {
            at += 1;
            let third = place.ttl / 3;
            if place.is_empty() && at > 1 {
                let spare = now >= place.used + SPARE.min(third);
                if spare {
                    care.end.push(Arc::clone(&place.seat));
                }
                care.again_in = care.again_in.min(third / 2);
                return !spare;
            }
            if !place.waits {
                care.again_in = care.again_in.min(third / 2);
                if place.seat.silent() >= third {
                    care.beat.push(Arc::clone(&place.seat));
                }
            }
            true
        });
        care.again_in = care.again_in.max(Duration::from_millis(5));
        care
    }
}

impl Places {
    fn of(&mut self, seat: &Arc<Seat>) -> Option<&mut Place> {
        self.all.iter_mut().find(|place| Arc::ptr_eq(&place.seat, seat))
    }

    /// Takes a place at which nothing is. The first one is left for what needs no place of its own, if it can be.
    fn empty(&mut self, (key, claim): (i64, ClaimId), ttl: Duration, waits: bool, most: usize) -> Found {
        let count = self.all.len() + self.coming;
        let skipped = usize::from(waits && count < most);
        let free = |place: &&mut Place| place.is_empty() && !place.seat.has_ended() && !place.hangs();
        let best = self.all.iter_mut().skip(skipped).filter(free).min_by_key(|place| place.ttl != ttl);
        let Some(place) = best else {
            if count >= most {
                return Found::Full;
            }
            self.coming += 1;
            return Found::Make;
        };
        let fits = place.ttl == ttl;
        place.ttl = ttl;
        place.keys.insert(key, claim);
        place.waits = waits;
        place.used = SystemClock.now();
        let seat = Arc::clone(&place.seat);
        if fits { Found::Seat(seat) } else { Found::Retimed(seat) }
    }
}
