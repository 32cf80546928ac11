//! Belief (I2, I5): no two who exclude each other believe at one time that they hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Violation;
use crate::history::{Hold, HoldMode, Nanos};

/// Who believes at the moment, by when each will stop, so that who has stopped is found first.
#[derive(Debug, Default)]
struct Believers {
    exclusive: BTreeSet<(Nanos, usize)>,
    shared: BTreeSet<(Nanos, usize)>,
    slots: BTreeSet<(Nanos, usize)>,
    by_slot: HashMap<u32, BTreeMap<Nanos, usize>>,
}

impl Believers {
    /// Forgets who stopped before or at `now`.
    fn advance(&mut self, now: Nanos) {
        for set in [&mut self.exclusive, &mut self.shared, &mut self.slots] {
            while set.first().is_some_and(|(until, _)| *until <= now) {
                set.pop_first();
            }
        }
    }

    /// Somebody who believes at `now` what excludes `hold`, and believes it longest.
    fn rival(&mut self, hold: &Hold) -> Option<usize> {
        let longest = |set: &BTreeSet<(Nanos, usize)>| set.last().copied();
        let same_slot = hold.slot.and_then(|slot| {
            let same = self.by_slot.get(&slot)?.last_key_value()?;
            (*same.0 > hold.from).then_some((*same.0, *same.1))
        });
        let rivals = match hold.mode {
            HoldMode::Exclusive => [longest(&self.exclusive), longest(&self.shared), longest(&self.slots)],
            HoldMode::Shared => [longest(&self.exclusive), longest(&self.slots), None],
            HoldMode::Slot(_) => [longest(&self.exclusive), longest(&self.shared), same_slot],
        };
        rivals.into_iter().flatten().max().map(|(_, index)| index)
    }

    fn add(&mut self, hold: &Hold, index: usize) {
        let set = match hold.mode {
            HoldMode::Exclusive => &mut self.exclusive,
            HoldMode::Shared => &mut self.shared,
            HoldMode::Slot(_) => &mut self.slots,
        };
        set.insert((hold.until, index));
        if let Some(slot) = hold.slot {
            self.by_slot.entry(slot).or_default().insert(hold.until, index);
        }
    }
}

/// Looks at all grants of one key, which come in the order in which they were told.
pub(super) fn check(holds: &[&Hold], violations: &mut Vec<Violation>) {
    let mut believers = Believers::default();
    for (index, hold) in holds.iter().enumerate() {
        if hold.from >= hold.until {
            continue;
        }
        believers.advance(hold.from);
        if let Some(other) = believers.rival(hold) {
            violations.push(overlap(holds[other], hold));
        } else if let HoldMode::Slot(of) = hold.mode
            && believers.slots.len() >= of as usize
        {
            let what = format!(
                "process {} holds one of {of} slots while {} others are held",
                hold.process,
                believers.slots.len()
            );
            let mut ops: Vec<_> = believers.slots.iter().map(|(_, index)| holds[*index].op).collect();
            ops.push(hold.op);
            violations.push(Violation {
                checker: "belief",
                key: hold.key.to_string(),
                at: hold.from,
                what,
                ops,
            });
        }
        believers.add(hold, index);
    }
}

fn overlap(first: &Hold, second: &Hold) -> Violation {
    let both = first.until.min(second.until) - second.from;
    let how = |hold: &Hold| match (hold.mode, hold.slot) {
        (HoldMode::Exclusive, _) => "alone".to_owned(),
        (HoldMode::Shared, _) => "shared".to_owned(),
        (HoldMode::Slot(_), Some(slot)) => format!("slot {slot}"),
        (HoldMode::Slot(_), None) => "a slot".to_owned(),
    };
    let what = format!(
        "process {} ({}) and process {} ({}) both believed that they held, for {:?}",
        first.process,
        how(first),
        second.process,
        how(second),
        std::time::Duration::from_nanos(both)
    );
    let ops = vec![first.op, second.op];
    Violation { checker: "belief", key: second.key.to_string(), at: second.from, what, ops }
}
