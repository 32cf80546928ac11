use palisade_core::{Admission, ClaimId, ClaimView, Mode, Name, Occupancy, ResourceView, Result, Token};

use crate::jute::Stat;
use crate::keys::{Called, LEASES, Mark, QUEUE, floor_of};
use crate::proto::Node;
use crate::record::{Record, foreign_view};
use bytes::Bytes;

/// All who hold or wait for a resource, by arrival. Who holds follows from it alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) entries: Vec<Entry>,
    /// A number of slots that was changed, and when.
    pub(crate) resized: Option<(u32, i64)>,
    /// How often the folder was written, by which it is seen whether that changed again.
    pub(crate) version: i32,
    /// The greatest token that was lifted.
    pub(crate) floor: Option<u64>,
    /// Whether there is something below the folder that was not listed.
    unread: bool,
}

/// A claim's node.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// What it is called in its folder.
    pub(crate) name: String,
    pub(crate) called: Called,
    /// What is in it, once that was asked for.
    pub(crate) inside: Option<Inside>,
}

#[derive(Debug, Clone)]
pub(crate) struct Inside {
    pub(crate) value: Bytes,
    /// `None` if it is another client's.
    pub(crate) record: Option<Record>,
    pub(crate) stat: Stat,
}

/// Whom a claim waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// Until this node is deleted, or written.
    Node(String),
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

impl Line {
    /// The line as the names of the nodes tell it.
    pub(crate) fn of_names(names: Vec<String>) -> Self {
        let unread = names.iter().any(|name| name == QUEUE || name == LEASES);
        Self { unread, ..Self::of_all(names, Vec::new(), Vec::new()) }
    }

    /// The same with those who wait for slots, and then those who have them, in an order of reading in which
    /// nobody is overlooked.
    pub(crate) fn of_all(names: Vec<String>, queued: Vec<String>, leased: Vec<String>) -> Self {
        let floor = names.iter().filter_map(|name| floor_of(name)).max();
        let below = |folder: &str, names: Vec<String>| {
            in_order(names.into_iter().map(|name| format!("{folder}/{name}")).collect())
        };
        let mut entries = in_order(names);
        entries.extend(below(LEASES, leased));
        entries.extend(below(QUEUE, queued));
        Self { entries, floor, ..Self::default() }
    }

    /// Fills in what was read of the first nodes, in their order; those that are no more leave the line.
    /// `false` if one of these waited for a slot: it may have one by now.
    pub(crate) fn fill(&mut self, nodes: Vec<Option<Node>>) -> bool {
        let count = nodes.len();
        let mut nodes = nodes.into_iter();
        let (mut at, mut whole) = (0, true);
        self.entries.retain_mut(|entry| {
            at += 1;
            if at > count {
                return true;
            }
            let Some(node) = nodes.next().flatten() else {
                whole &= entry.called.mark != Mark::Queued;
                return false;
            };
            let (value, record) = Record::parse(&node.data);
            entry.inside = Some(Inside { value, record, stat: node.stat });
            true
        });
        if self.is_mixed() {
            // Numbers of different folders do not compare; the transactions in which they came do.
            self.entries.sort_by_key(Entry::came);
        }
        whole
    }

    /// Whether one who still waits for a slot stands ahead of a place.
    pub(crate) fn is_queued_before(&self, at: usize) -> bool {
        self.entries[..at].iter().any(|entry| entry.called.mark == Mark::Queued)
    }

    /// Whether some want slots and some do not, so that only what is in the nodes tells the order.
    pub(crate) fn is_mixed(&self) -> bool {
        let slots = self.entries.iter().filter(|entry| entry.called.mark.is_slot()).count();
        slots > 0 && slots < self.entries.len()
    }

    /// Where a claim stands in the line.
    pub(crate) fn place_of(&self, claim: ClaimId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id() == claim)
    }

    /// Whether the names alone tell how a claim at this place stands.
    pub(crate) fn is_plain(&self, at: usize) -> bool {
        if self.unread || self.is_mixed() {
            return false;
        }
        let ahead = &self.entries[..at];
        match self.entries[at].called.mark {
            Mark::Exclusive => true,
            Mark::Shared => ahead.iter().all(|entry| entry.called.mark == Mark::Shared),
            // Not the first: it waits.
            Mark::Queued => ahead.last().is_some_and(|entry| entry.called.mark == Mark::Queued),
            Mark::Leased => false,
        }
    }

    /// Whether all ahead of a place came to hold alone.
    pub(crate) fn all_alone(&self, at: usize) -> bool {
        self.entries[..at].iter().all(|entry| entry.called.mark == Mark::Exclusive)
    }

    /// The mode of an entry, with the number of slots that counts for it.
    pub(crate) fn mode(&self, at: usize) -> Mode {
        match (self.written_mode(at), self.entries[at].called.mark) {
            (Some(mode), _) => mode,
            (None, Mark::Shared) => Mode::Shared,
            (None, Mark::Exclusive) => Mode::Exclusive,
            // Another client's, which says nowhere of how many: all must agree.
            (None, Mark::Queued | Mark::Leased) => {
                Mode::Slot { of: self.slots_in_force().unwrap_or_else(|| self.leases(self.entries.len())) }
            }
        }
    }

    /// The mode as the record has it.
    fn written_mode(&self, at: usize) -> Option<Mode> {
        let inside = self.entries[at].inside.as_ref()?;
        match (inside.record.as_ref()?.mode(), self.resized) {
            (Mode::Slot { .. }, Some((of, when))) if inside.stat.created < when => Some(Mode::Slot { of }),
            (mode, _) => Some(mode),
        }
    }

    /// The number of slots in force, as far as clients of ours have said.
    pub(crate) fn slots_in_force(&self) -> Option<u32> {
        (0..self.entries.len()).find_map(|at| self.written_mode(at)?.slots())
    }

    fn slot(&self, at: usize) -> Option<u32> {
        self.entries[at].record().and_then(|record| record.slot)
    }

    /// How many have slots ahead of a place.
    fn leases(&self, at: usize) -> u32 {
        self.entries[..at].iter().filter(|entry| entry.called.mark == Mark::Leased).count().max(1) as u32
    }

    /// Whether an entry holds. All who hold came before all who wait.
    pub(crate) fn holds(&self, at: usize) -> bool {
        match self.entries[at].called.mark {
            Mark::Queued => false,
            Mark::Leased => self.slot(at).is_some() || self.is_counted_in(at),
            _ if self.mode(at) == Mode::Shared => (0..at).all(|ahead| self.mode(ahead) == Mode::Shared),
            _ => at == 0,
        }
    }

    /// Whether another client that made its node among those who have slots has one: the first to wait makes
    /// it early, and waits until there are no more than there may be.
    fn is_counted_in(&self, at: usize) -> bool {
        let ahead = self.entries[..at].iter().filter(|entry| entry.called.mark == Mark::Leased).count();
        self.slots_in_force().is_none_or(|of| ahead < of as usize)
    }

    pub(crate) fn standing(&self, at: usize) -> Standing {
        if self.holds(at) {
            return Standing::Holds { slot: self.slot(at) };
        }
        let node = |ahead: usize| Standing::Waits(Blocker::Node(self.entries[ahead].name.clone()));
        if self.entries[at].called.mark.is_slot() {
            let waits = |ahead: &usize| self.entries[*ahead].called.mark != Mark::Leased;
            return match (0..at).rev().find(waits) {
                Some(ahead) => node(ahead),
                None => match self.inside(at).admit(self.mode(at)).and_then(|admission| admission.slot) {
                    Some(slot) => Standing::MayTake { slot },
                    None => Standing::Waits(Blocker::Anyone),
                },
            };
        }
        if self.mode(at) == Mode::Shared {
            let last = (0..at).rev().find(|ahead| self.mode(*ahead) != Mode::Shared);
            return node(last.unwrap_or(0));
        }
        node(at - 1)
    }

    /// Those ahead of a place, as if all of them held; and all who have a slot. One of another client's does not say
    /// since when it was in line, and may stand further behind than it came.
    fn inside(&self, at: usize) -> Occupancy {
        let mut inside = Occupancy::default();
        let is_leased = |other: usize| self.entries[other].called.mark == Mark::Leased;
        for other in (0..self.entries.len()).filter(|other| *other < at || (*other > at && is_leased(*other)))
        {
            // What others hold has no number, but counts: one that nobody asks for.
            let counted = is_leased(other).then(|| u32::MAX - other as u32);
            inside.enter(self.mode(other), self.slot(other).or(counted));
        }
        inside
    }

    /// Whether a newcomer would hold at once.
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

    /// The token of an entry that holds, if it was read: the transaction in which it came, since all come in by
    /// arrival; also those with slots, who have another node by then.
    pub(crate) fn token(&self, at: usize) -> Option<Token> {
        let (entry, inside) = (&self.entries[at], self.entries[at].inside.as_ref()?);
        let lifted = inside.record.as_ref().and_then(|record| record.token);
        Token::new(lifted.or_else(|| u64::try_from(entry.came()).ok())?)
    }

    pub(crate) fn view(&self, at: usize) -> Result<ClaimView> {
        let (entry, token) = (&self.entries[at], self.token(at).filter(|_| self.holds(at)));
        let (value, owner) = match &entry.inside {
            Some(inside) => (&inside.value, inside.stat.owner),
            None => (&Bytes::new(), 0),
        };
        match entry.record() {
            Some(record) => record.view(value, self.mode(at), token),
            None => Ok(foreign_view(entry.id(), owner, value, self.mode(at), token)),
        }
    }

    pub(crate) fn holders(&self) -> Result<Vec<ClaimView>> {
        (0..self.entries.len()).filter(|at| self.holds(*at)).map(|at| self.view(at)).collect()
    }

    /// The resource as seen from outside.
    pub(crate) fn shown(&self, resource: Name) -> Result<ResourceView> {
        let waiters = (0..self.entries.len()).filter(|at| !self.holds(*at)).map(|at| self.view(at));
        Ok(ResourceView { resource, holders: self.holders()?, waiters: waiters.collect::<Result<_>>()? })
    }
}

/// The claims of one folder, by their numbers.
fn in_order(names: Vec<String>) -> Vec<Entry> {
    let entry = |name: String| Called::parse(&name).map(|called| Entry { name, called, inside: None });
    let mut entries: Vec<Entry> = names.into_iter().filter_map(entry).collect();
    // By distance from any of them: numbers go on below zero after the greatest, and no two of a line
    // are further apart than half of all.
    let origin = entries.first().map_or(0, |entry| entry.called.number);
    let key = |entry: &Entry| {
        // Curator gives a writer's own read lock the writer's number.
        (entry.called.number.wrapping_sub(origin), entry.called.mark != Mark::Exclusive)
    };
    entries.sort_by(|one, other| key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name)));
    entries
}

impl Entry {
    /// The transaction in which its claim came, also if it got another node since.
    pub(crate) fn came(&self) -> i64 {
        let Some(inside) = &self.inside else { return i64::MAX };
        inside.record.as_ref().and_then(|record| record.came).unwrap_or(inside.stat.created)
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.inside.as_ref()?.record.as_ref()
    }

    /// The id in its name, or one made from the name.
    pub(crate) fn id(&self) -> ClaimId {
        self.called.id.unwrap_or_else(|| {
            let mut bytes = [0_u8; 16];
            for (at, byte) in self.name.bytes().enumerate() {
                bytes[at % 16] = byte ^ bytes[at % 16].rotate_left(3);
            }
            ClaimId::from_bytes(bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palisade_core::{Claim, Owner, Ttl};

    use super::*;

    fn line(modes: &[(Mode, Option<u32>)]) -> Line {
        let owner = Arc::new(Owner::this_process());
        let (mut names, mut queued, mut leased) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (mode, slot)) in modes.iter().enumerate() {
            match (mode, slot) {
                (Mode::Slot { .. }, Some(_)) => leased.push(format!("lease-{at:010}")),
                (Mode::Slot { .. }, None) => queued.push(format!("lock-{at:010}")),
                (Mode::Shared, _) => names.push(format!("__READ__{at:010}")),
                (Mode::Exclusive, _) => names.push(format!("lock-{at:010}")),
            }
        }
        let mut line = Line::of_all(names, queued, leased);
        // As they are stored: those of slots apart from others.
        let mut modes: Vec<_> = modes.iter().enumerate().collect();
        modes.sort_by_key(|(_, (mode, slot))| (mode.slots().is_some(), slot.is_none()));
        let node = |(at, (mode, slot)): (usize, &(Mode, Option<u32>))| {
            let claim = Claim::new(Name::new("a").unwrap(), *mode, Ttl::default(), Arc::clone(&owner));
            let data = Record::of(&claim, "c", *slot).bytes(b"").into();
            let stat = Stat { created: i64::try_from(at).unwrap() + 1, ..Stat::default() };
            Some(Node { data, stat })
        };
        assert!(line.fill(modes.into_iter().map(node).collect()));
        line
    }

    fn waits_for(node: &str) -> Standing {
        Standing::Waits(Blocker::Node(node.to_owned()))
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
        let [first, writer, last] =
            ["__READ__0000000001", "lock-0000000002", "__READ__0000000004"].map(waits_for);
        let expected = [HOLDS, HOLDS, first, writer.clone(), writer, last];
        assert_eq!(standings, expected);
        assert_eq!((line.waiting_ahead(2), line.waiting_ahead(5)), (0, 3));
    }

    #[test]
    fn only_the_first_without_a_slot_may_take_one() {
        let line = line(&[slot(Some(1)), slot(None), slot(None)]);
        assert_eq!(line.standing(1), Standing::MayTake { slot: 0 });
        assert_eq!(line.standing(2), waits_for("locks/lock-0000000001"));
        let line = &mut self::line(&[slot(Some(1)), slot(Some(0)), slot(None)]);
        assert_eq!(line.standing(2), Standing::Waits(Blocker::Anyone));
        // More slots count for those who came before.
        line.resized = Some((3, 9));
        assert_eq!(line.standing(2), Standing::MayTake { slot: 2 });
        line.resized = Some((3, 1));
        assert_eq!(line.standing(2), Standing::Waits(Blocker::Anyone));
    }

    #[test]
    fn slots_and_others_stand_in_one_line_by_arrival() {
        let line = line(&[slot(Some(0)), X, slot(None), S, slot(None)]);
        let standings: Vec<_> = (0..5).map(|at| line.standing(at)).collect();
        let expected = [
            Standing::Holds { slot: Some(0) },
            waits_for("leases/lease-0000000000"),
            waits_for("lock-0000000001"),
            waits_for("locks/lock-0000000002"),
            waits_for("__READ__0000000003"),
        ];
        assert_eq!(standings, expected);
    }

    /// They have no numbers and no records, but count.
    #[test]
    fn slots_of_others_count() {
        let mut line = line(&[slot(Some(1)), slot(Some(0)), slot(None)]);
        line.entries[1].inside.as_mut().unwrap().record = None;
        assert_eq!(line.standing(2), Standing::Waits(Blocker::Anyone));
        line.resized = Some((3, 9));
        assert_eq!(line.standing(2), Standing::MayTake { slot: 0 });
        assert!(line.holds(1));
        line.resized = Some((1, 9));
        assert!(!line.holds(1), "it made its node early, and waits");
    }

    /// In a line with locks of the same name, a slot of another client stands where its node was made: later than it
    /// came in line.
    #[test]
    fn slots_of_others_count_wherever_they_stand() {
        let one = |slot| (Mode::Slot { of: 1 }, slot);
        let mut line = line(&[one(None), X, one(Some(0))]);
        line.entries[2].inside.as_mut().unwrap().record = None;
        assert_eq!(line.entries[0].called.mark, Mark::Queued);
        assert_eq!(line.standing(0), Standing::Waits(Blocker::Anyone));
    }

    /// Whoever left the queue may have a slot: that is seen only by listing again.
    #[test]
    fn who_vanished_from_the_queue_is_looked_for() {
        let names = |name: &str| vec![format!("{name}0000000001")];
        let mut line = Line::of_all(Vec::new(), names("lock-"), names("lease-"));
        assert!(!line.fill(vec![Some(Node { data: Bytes::new(), stat: Stat::default() }), None]));
        let mut line = Line::of_all(Vec::new(), names("lock-"), names("lease-"));
        assert!(line.fill(vec![None]));
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
    fn numbers_that_wrap_keep_their_order() {
        let names =
            |numbers: &[&str]| numbers.iter().map(|number| format!("x-lock-{number}")).collect::<Vec<_>>();
        let sorted = names(&["2147483646", "2147483647", "-2147483648", "-2147483647"]);
        for turn in 0..sorted.len() {
            let mut mixed = sorted.clone();
            mixed.rotate_left(turn);
            let line = Line::of_names(mixed);
            assert!(line.entries.iter().map(|entry| &entry.name).eq(sorted.iter()));
        }
        // From below zero up to zero it goes on, too.
        let sorted = names(&["-000000002", "-000000001", "0000000000", "0000000001"]);
        let line = Line::of_names(sorted.iter().rev().cloned().collect());
        assert!(line.entries.iter().map(|entry| &entry.name).eq(sorted.iter()));
    }

    #[test]
    fn what_is_no_claim_is_not_in_line_and_what_vanished_leaves_it() {
        let names = ["locks", "lock-0000000002", "floor%77", "leases", "a__rlock__0000000001"];
        let mut line = Line::of_names(names.map(String::from).to_vec());
        assert_eq!((line.entries.len(), line.floor), (2, Some(77)));
        assert_eq!((line.mode(0), line.mode(1)), (Mode::Shared, Mode::Exclusive));
        line.fill(vec![None]);
        assert_eq!(line.entries.len(), 1);
        assert_eq!(line.standing(0), HOLDS);
    }
}
