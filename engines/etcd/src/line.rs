use bytes::Bytes;
use palisade_core::{Admission, ClaimId, ClaimView, Mode, Occupancy, ResourceView, Result, Token};

use crate::keys::Resource;
use crate::proto::{Compare, KeyValue, RangeRequest, Request};
use crate::record::{Record, foreign_id, foreign_view};
use crate::txn::{Answers, all_under, created_at, delete, get, newest_under, put, written_at};

/// All who hold or wait for a resource, by arrival, as they were at one revision. Who holds follows
/// from it alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) entries: Vec<Entry>,
    /// A number of slots that was changed, and when.
    pub(crate) resized: Option<(u32, i64)>,
    /// The greatest token that was lifted, and when.
    pub(crate) floor: Option<(u64, i64)>,
}

/// A lock key, with its record unless it is another client's.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) tail: String,
    pub(crate) lock: KeyValue,
    pub(crate) record: Option<Stored>,
}

/// The record of a claim. It is the lock key's value, unless that is what the claim publishes.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) record: Record,
    /// When it was last written, if it stands beside.
    beside: Option<i64>,
}

/// Whom a claim waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// Until this key is deleted; or written, if its owner may let others in beside it.
    Key { tail: String, puts: bool },
    /// Until any of those inside leaves.
    Anyone,
}

/// How a claim stands in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds {
        slot: Option<u32>,
    },
    /// It may take this slot, and has not yet.
    MayTake {
        slot: u32,
    },
    Waits(Blocker),
}

/// The requests that show a whole line. `until` leaves out who came later.
pub(crate) fn look_at(resource: &Resource, until: Option<i64>) -> [Request; 4] {
    let max_create_revision = until.unwrap_or(0);
    let part = |prefix: &[u8]| RangeRequest { max_create_revision, ..all_under(prefix) };
    [
        Request::Range(part(&resource.locks)),
        Request::Range(part(&resource.records)),
        get(resource.slots.clone()),
        get(resource.floor.clone()),
    ]
}

/// The requests that show an exclusive claim and whoever is right ahead of it: all that it needs.
pub(crate) fn look_ahead(resource: &Resource, tail: &str, created: i64) -> [Request; 4] {
    let two = RangeRequest { max_create_revision: created, ..newest_under(&resource.locks, 2) };
    [
        Request::Range(two),
        get(resource.record(tail)),
        get(resource.slots.clone()),
        get(resource.floor.clone()),
    ]
}

/// The requests that show the lock keys of an exclusive claim and of whoever is right ahead of it, and the
/// greatest token that was lifted, as one server knows them.
pub(crate) fn look_nearby(resource: &Resource, created: i64) -> [Request; 2] {
    let locks = newest_under(&resource.locks, 2);
    let two = RangeRequest { max_create_revision: created, serializable: true, keys_only: true, ..locks };
    let floor = RangeRequest { key: resource.floor.clone(), serializable: true, ..RangeRequest::default() };
    [Request::Range(two), Request::Range(floor)]
}

/// The request that shows the lock key of whoever came right after a claim, as one server knows it.
pub(crate) fn look_behind(resource: &Resource, created: i64) -> RangeRequest {
    RangeRequest {
        min_create_revision: created + 1,
        limit: 1,
        sort_order: 1,
        sort_target: 2,
        serializable: true,
        keys_only: true,
        ..all_under(&resource.locks)
    }
}

impl Line {
    /// Reads the answers to [`look_at`] or [`look_ahead`].
    pub(crate) fn read(resource: &Resource, answers: &mut Answers) -> Result<Self> {
        let (locks, records) = (answers.range()?.kvs, answers.range()?.kvs);
        let number = |stored: Option<KeyValue>| {
            let stored = stored?;
            let number: u64 = std::str::from_utf8(&stored.value).ok()?.parse().ok()?;
            Some((number, stored.mod_revision))
        };
        let resized = number(answers.key()?).and_then(|(of, at)| Some((u32::try_from(of).ok()?, at)));
        let floor = number(answers.key()?);
        let mut entries = Vec::with_capacity(locks.len());
        for lock in locks {
            let tail = String::from_utf8_lossy(&lock.key[resource.locks.len()..]).into_owned();
            let key = resource.record(&tail);
            let beside = records.iter().find(|record| record.key == key);
            let record = Stored::find(&lock, beside)?;
            entries.push(Entry { tail, lock, record });
        }
        entries.sort_by_key(|entry| entry.lock.create_revision);
        Ok(Self { entries, resized, floor })
    }

    /// Where a claim stands in the line.
    pub(crate) fn place_of(&self, claim: ClaimId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.is(claim))
    }

    /// The mode of an entry, with the number of slots that counts for it.
    pub(crate) fn mode(&self, at: usize) -> Mode {
        let entry = &self.entries[at];
        let mode = entry.record.as_ref().map_or(Mode::Exclusive, |stored| stored.record.mode());
        match (mode, self.resized) {
            (Mode::Slot { .. }, Some((of, when))) if entry.lock.create_revision < when => Mode::Slot { of },
            (mode, _) => mode,
        }
    }

    /// The number of slots in force.
    pub(crate) fn slots_in_force(&self) -> Option<u32> {
        (0..self.entries.len()).find_map(|at| self.mode(at).slots())
    }

    fn slot(&self, at: usize) -> Option<u32> {
        self.entries[at].record.as_ref().and_then(|stored| stored.record.slot)
    }

    /// Whether an entry holds. All who hold came before all who wait.
    pub(crate) fn holds(&self, at: usize) -> bool {
        match self.mode(at) {
            Mode::Exclusive => at == 0,
            Mode::Shared => (0..at).all(|ahead| self.mode(ahead) == Mode::Shared),
            Mode::Slot { .. } => self.slot(at).is_some(),
        }
    }

    pub(crate) fn standing(&self, at: usize) -> Standing {
        if self.holds(at) {
            return Standing::Holds { slot: self.slot(at) };
        }
        let key = |ahead: usize, puts: bool| {
            Standing::Waits(Blocker::Key { tail: self.entries[ahead].tail.clone(), puts })
        };
        match self.mode(at) {
            Mode::Exclusive => key(at - 1, false),
            Mode::Shared => {
                let last = (0..at).rev().find(|ahead| self.mode(*ahead) != Mode::Shared);
                key(last.unwrap_or(0), true)
            }
            mode @ Mode::Slot { .. } => match (0..at).rev().find(|ahead| self.slot(*ahead).is_none()) {
                Some(ahead) => key(ahead, true),
                None => match self.inside(at).admit(mode).and_then(|admission| admission.slot) {
                    Some(slot) => Standing::MayTake { slot },
                    None => Standing::Waits(Blocker::Anyone),
                },
            },
        }
    }

    /// Those ahead of a place, as if all of them held.
    fn inside(&self, at: usize) -> Occupancy {
        let mut inside = Occupancy::default();
        (0..at).for_each(|ahead| inside.enter(self.mode(ahead), self.slot(ahead)));
        inside
    }

    /// Whether a newcomer would hold at once, and which slot; it then came in behind all others.
    pub(crate) fn admits(&self, mode: Mode) -> Option<Admission> {
        let end = self.entries.len();
        if !(0..end).all(|at| self.holds(at)) {
            return None;
        }
        self.inside(end).admit(mode)
    }

    /// How many wait ahead of a place.
    pub(crate) fn waiting_ahead(&self, at: usize) -> u32 {
        (0..at).filter(|ahead| !self.holds(*ahead)).count() as u32
    }

    /// The token of an entry that holds.
    pub(crate) fn token(&self, at: usize) -> Option<Token> {
        let entry = &self.entries[at];
        let lifted = entry.record.as_ref().and_then(|stored| stored.record.token);
        Token::new(lifted.or_else(|| u64::try_from(entry.lock.create_revision).ok())?)
    }

    pub(crate) fn view(&self, at: usize) -> Result<ClaimView> {
        let (entry, holds) = (&self.entries[at], self.holds(at));
        match &entry.record {
            Some(Stored { record, .. }) => {
                record.view(&entry.lock.value, self.mode(at), self.token(at).filter(|_| holds))
            }
            None => Ok(foreign_view(entry.lock.lease, entry.lock.create_revision, &entry.lock.value, holds)),
        }
    }

    pub(crate) fn holders(&self) -> Result<Vec<ClaimView>> {
        (0..self.entries.len()).filter(|at| self.holds(*at)).map(|at| self.view(at)).collect()
    }

    /// The resource as seen from outside.
    pub(crate) fn shown(&self, resource: palisade_core::Name) -> Result<ResourceView> {
        let waiters = (0..self.entries.len()).filter(|at| !self.holds(*at)).map(|at| self.view(at));
        Ok(ResourceView { resource, holders: self.holders()?, waiters: waiters.collect::<Result<_>>()? })
    }
}

impl Entry {
    pub(crate) fn is(&self, claim: ClaimId) -> bool {
        match &self.record {
            Some(stored) => stored.record.is(claim),
            None => foreign_id(self.lock.lease, self.lock.create_revision) == claim,
        }
    }

    /// The same claim as it was seen, and its record too.
    pub(crate) fn unchanged(&self, resource: &Resource) -> [Compare; 2] {
        let lock = resource.lock(&self.tail);
        let record = match self.record.as_ref().and_then(|stored| stored.beside) {
            Some(written) => written_at(resource.record(&self.tail), written),
            None => written_at(lock.clone(), self.lock.mod_revision),
        };
        [created_at(lock, self.lock.create_revision), record]
    }

    /// Writes the claim anew. The lock key is written in any case: it is what others watch.
    pub(crate) fn puts(&self, resource: &Resource, record: &Record, value: Bytes) -> Vec<Request> {
        let mut requests = claim_puts(resource, &self.tail, record, value, self.lock.lease);
        if !record.value && self.record.as_ref().is_some_and(|stored| stored.beside.is_some()) {
            requests.push(delete(resource.record(&self.tail)));
        }
        requests
    }
}

/// What is written of a claim: its record, and beside it what it publishes, if it does.
pub(crate) fn claim_puts(
    resource: &Resource,
    tail: &str,
    record: &Record,
    value: Bytes,
    lease: i64,
) -> Vec<Request> {
    if record.value {
        vec![put(resource.lock(tail), value, lease), put(resource.record(tail), record.bytes(), lease)]
    } else {
        vec![put(resource.lock(tail), record.bytes(), lease)]
    }
}

impl Stored {
    /// The record of a lock key. One beside it that is older than the lock is of an earlier claim.
    pub(crate) fn find(lock: &KeyValue, beside: Option<&KeyValue>) -> Result<Option<Self>> {
        match beside.filter(|beside| beside.mod_revision >= lock.create_revision) {
            Some(beside) => {
                let record = Record::parse(&beside.value)?;
                Ok(Some(Self { record, beside: Some(beside.mod_revision) }))
            }
            // What another client publishes is not ours to read.
            None => Ok(Record::parse(&lock.value).ok().map(|record| Self { record, beside: None })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palisade_core::{Claim, Name, Owner, Ttl};

    use super::*;

    fn line(modes: &[(Mode, Option<u32>)]) -> Line {
        let owner = Arc::new(Owner::this_process());
        let entry = |(at, (mode, slot)): (usize, &(Mode, Option<u32>))| {
            let claim = Claim::new(Name::new("a").unwrap(), *mode, Ttl::default(), Arc::clone(&owner));
            let lock = KeyValue { create_revision: i64::try_from(at).unwrap() + 1, ..KeyValue::default() };
            let record = Stored { record: Record::of(&claim, "c", *slot), beside: None };
            Entry { tail: at.to_string(), lock, record: Some(record) }
        };
        Line { entries: modes.iter().enumerate().map(entry).collect(), ..Line::default() }
    }

    fn waits_for(at: usize, puts: bool) -> Standing {
        Standing::Waits(Blocker::Key { tail: at.to_string(), puts })
    }

    const HOLDS: Standing = Standing::Holds { slot: None };
    const X: (Mode, Option<u32>) = (Mode::Exclusive, None);
    const S: (Mode, Option<u32>) = (Mode::Shared, None);

    fn slot(slot: Option<u32>) -> (Mode, Option<u32>) {
        (Mode::Slot { of: 2 }, slot)
    }

    #[test]
    fn writers_wait_for_the_one_ahead_and_readers_for_the_last_writer() {
        let line = line(&[S, S, X, S, S, X]);
        let standings: Vec<_> = (0..6).map(|at| line.standing(at)).collect();
        let expected =
            [HOLDS, HOLDS, waits_for(1, false), waits_for(2, true), waits_for(2, true), waits_for(4, false)];
        assert_eq!(standings, expected);
        assert_eq!((line.waiting_ahead(2), line.waiting_ahead(5)), (0, 3));
    }

    #[test]
    fn only_the_first_without_a_slot_may_take_one() {
        let mut line = line(&[slot(Some(1)), slot(None), slot(None)]);
        assert_eq!(line.standing(1), Standing::MayTake { slot: 0 });
        assert_eq!(line.standing(2), waits_for(1, true));
        line.entries[1].record.as_mut().unwrap().record.slot = Some(0);
        assert_eq!(line.standing(2), Standing::Waits(Blocker::Anyone));
        // More slots count for those who came before.
        line.resized = Some((3, 9));
        assert_eq!(line.standing(2), Standing::MayTake { slot: 2 });
        line.resized = Some((3, 1));
        assert_eq!(line.standing(2), Standing::Waits(Blocker::Anyone));
    }

    #[test]
    fn a_newcomer_comes_in_only_if_nobody_waits() {
        let comes_in = |slot| Some(Admission { slot });
        assert_eq!(line(&[]).admits(Mode::Exclusive), comes_in(None));
        assert_eq!(line(&[S]).admits(Mode::Shared), comes_in(None));
        assert_eq!(line(&[S, X]).admits(Mode::Shared), None);
        assert_eq!(line(&[slot(Some(0))]).admits(Mode::Slot { of: 2 }), comes_in(Some(1)));
        assert_eq!(line(&[slot(None)]).admits(Mode::Slot { of: 2 }), None);
        assert_eq!(line(&[slot(Some(0))]).admits(Mode::Shared), None);
    }

    #[test]
    fn a_key_without_a_record_is_exclusive() {
        let mut line = line(&[S, S]);
        line.entries[0].record = None;
        assert_eq!(line.standing(0), HOLDS);
        assert_eq!(line.standing(1), waits_for(0, true));
    }
}
