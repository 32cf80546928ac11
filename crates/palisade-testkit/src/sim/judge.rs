use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::plan::{Fault, Plan};
use super::world::World;
use crate::check::Violation;
use crate::history::{Answer, Call, Ended, Event, History, Hold, HoldMode, Nanos, OpId};

/// What a simulation showed that must never be.
pub(super) fn judge(events: &[Event], plan: &Plan, processes: &[usize]) -> Vec<Violation> {
    let history = match History::from_events(events.iter().cloned()) {
        Ok(history) => history,
        Err(what) => return vec![violation("history", "", 0, what, &[])],
    };
    let holds = history.holds();
    let mut found = sets_are_whole(&history);
    let mut by_key: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in &holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    let told = Told::new(plan, processes, events);
    for (key, holds) in by_key {
        pairs(key, &holds, &told, &mut found);
    }
    found
}

fn violation(checker: &'static str, key: &str, at: Nanos, what: String, ops: &[u64]) -> Violation {
    Violation { checker, key: key.to_owned(), at, what, ops: ops.to_vec() }
}

/// No addition that was acknowledged is missing in the end, and nothing is there that nobody added.
fn sets_are_whole(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, ops) in history.by_key() {
        let last = ops.iter().rev().find_map(|op| match (&op.call, &op.answer) {
            (Call::Read, Answer::Value { value, .. }) => Some((op.start, value.as_deref().unwrap_or(""))),
            _ => None,
        });
        let Some((at, value)) = last else { continue };
        let elements: BTreeSet<&str> = value.split(',').filter(|element| !element.is_empty()).collect();
        for op in &ops {
            let Call::Add { element } = &op.call else { continue };
            let there = elements.contains(element.as_str());
            match &op.answer {
                Answer::Done { .. } if !there => {
                    let what = format!("{element} was acknowledged and is missing in the end");
                    found.push(violation("set", &key, at, what, &[op.id]));
                }
                Answer::Failed { reason } if there => {
                    let what =
                        format!("{element} is there, though it was said to have had no effect: {reason}");
                    found.push(violation("set", &key, at, what, &[op.id]));
                }
                Answer::Refused { .. } if there => {
                    let what = format!("{element} is there, though it was refused");
                    found.push(violation("set", &key, at, what, &[op.id]));
                }
                _ => {}
            }
        }
    }
    found
}

/// Who was told what, and when each process stood still, so that it could not be told anything.
struct Told<'a> {
    /// When each hold was told that it is lost.
    lost: BTreeMap<OpId, Nanos>,
    spans: Vec<(usize, Nanos, Nanos)>,
    processes: &'a [usize],
}

impl<'a> Told<'a> {
    fn new(plan: &Plan, processes: &'a [usize], events: &[Event]) -> Self {
        let world = |after: Duration| World::START + after.as_nanos() as Nanos;
        let spans = plan.faults.iter().filter_map(|fault| match *fault {
            Fault::Pause { node, at, lasts } => Some((node, world(at), world(at + lasts))),
            _ => None,
        });
        let lost = events.iter().filter_map(|event| match event {
            Event::Lost { hold, at, .. } => Some((*hold, *at)),
            _ => None,
        });
        Self { lost: lost.collect(), spans: spans.collect(), processes }
    }

    /// Whether a hold that ended by itself was told so by `when`, or could not be.
    fn by(&self, hold: &Hold, when: Nanos) -> bool {
        let told = self.lost.get(&hold.op).is_some_and(|at| *at <= when);
        told || self.touches(hold.process, hold.until, when)
    }

    /// Whether it stood still at any moment between the two.
    fn touches(&self, process: u64, from: Nanos, until: Nanos) -> bool {
        let node = self.processes.get(process as usize).copied();
        self.spans.iter().any(|(of, start, end)| Some(*of) == node && *start <= until && *end >= from)
    }
}

fn exclude(a: &Hold, b: &Hold) -> bool {
    match (a.mode, b.mode) {
        (HoldMode::Shared, HoldMode::Shared) => false,
        (HoldMode::Slot(_), HoldMode::Slot(_)) => a.slot == b.slot,
        _ => true,
    }
}

/// What must hold between any two holds of one key.
fn pairs(key: &str, holds: &[&Hold], told: &Told<'_>, found: &mut Vec<Violation>) {
    for (at, first) in holds.iter().enumerate() {
        for second in &holds[at + 1..] {
            let ops = [first.op, second.op];
            let mut find = |checker, at, what| found.push(violation(checker, key, at, what, &ops));
            let (early, late) = (first.token, second.token);
            if early == late {
                find("tokens", second.from, format!("two grants have the token {early:?}"));
            }
            if first.from < second.asked && early > late {
                let what = format!("token {late:?} was granted after {early:?} had been");
                find("tokens", second.from, what);
            }
            if !exclude(first, second) {
                continue;
            }
            if first.until > second.from {
                let what = format!(
                    "#{} believed in its hold until {} ns after #{} held it",
                    first.op,
                    first.until - second.from,
                    second.op
                );
                find("belief", second.from, what);
            } else if early > late {
                find("tokens", second.from, format!("token {late:?} holds after {early:?} did"));
            }
            let by_itself = first.ended == Ended::Deadline && first.until < second.from;
            if by_itself && !told.by(first, second.from) {
                let what = format!("#{} was not told before #{} held it", first.op, second.op);
                find("told", second.from, what);
            }
        }
    }
}
