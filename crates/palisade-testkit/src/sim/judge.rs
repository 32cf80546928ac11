use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::{Fault, Plan};
use super::world::World;
use crate::check::linear::Budget;
use crate::check::{Bounds, Violation, all, excludes};
use crate::history::{Ended, Event, History, Hold, Nanos, OpId};

/// What a simulation showed that must never be: by the checkers that judge real servers too, and
/// one that needs to know who stood still when.
pub(super) fn judge(events: &[Event], plan: &Plan, processes: &[usize]) -> Vec<Violation> {
    let history = match History::from_events(events.iter().cloned()) {
        Ok(history) => history,
        Err(what) => return vec![violation("history", "", 0, what, &[])],
    };
    // Where one message can be late by two TTLs, and each try of a call take its time limit.
    let progress = plan.ttl * 5 + plan.call_timeout * 2 + Duration::from_secs(3);
    let linear = Budget { time: Duration::from_secs(5), configurations: 1_000_000 };
    let findings = all(&history, &Bounds { progress, fifo: false, linear });
    let mut found = findings.violations;
    found.extend(
        findings.undecided.into_iter().map(|open| violation("undecided", &open.key, 0, open.why, &[])),
    );
    found.extend(told_in_time(&history, &Told::new(plan, processes, events)));
    found.extend(lost_for_little(plan, events));
    found
}

/// A message or two that get lost cost nobody a lock.
fn lost_for_little(plan: &Plan, events: &[Event]) -> Option<Violation> {
    let too_long = palisade::LostReason::HeldTooLong.to_string();
    events.iter().filter(|_| plan.is_gentle()).find_map(|event| match event {
        Event::Lost { hold, at, reason } if *reason != too_long => {
            let what = format!("#{hold} was lost although two messages at most were: {reason}");
            Some(violation("gentle", "", *at, what, &[*hold]))
        }
        _ => None,
    })
}

fn violation(checker: &'static str, key: &str, at: Nanos, what: String, ops: &[OpId]) -> Violation {
    Violation { checker, key: key.to_owned(), at, what, ops: ops.to_vec() }
}

/// Who lost a hold was told before another came in (I9).
fn told_in_time(history: &History, told: &Told<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let holds = history.holds();
    for (at, first) in holds.iter().enumerate().filter(|(_, hold)| hold.ended == Ended::Deadline) {
        let mut later = holds[at + 1..].iter();
        let rivals = |second: &&Hold| second.key == first.key && excludes(first, second);
        let next = later.find(|second| second.from > first.until && rivals(second));
        // One that died may have been renewed once more since it was last looked at.
        let died = |by: Nanos| history.deaths.get(&first.process).is_some_and(|at| *at <= by);
        if let Some(second) = next.filter(|second| !told.by(first, second.from) && !died(second.from)) {
            let what = format!("#{} was not told before #{} held it", first.op, second.op);
            found.push(violation("told", &first.key, second.from, what, &[first.op, second.op]));
        }
    }
    found
}

/// Who was told what, and when each process stood still, so that it could not be told anything.
struct Told<'a> {
    /// When each hold was told that it is lost.
    lost: BTreeMap<OpId, Nanos>,
    still: Vec<(usize, Nanos, Nanos)>,
    processes: &'a [usize],
}

impl<'a> Told<'a> {
    fn new(plan: &Plan, processes: &'a [usize], events: &[Event]) -> Self {
        let world = |after: Duration| World::START + after.as_nanos() as Nanos;
        let still = plan.faults.iter().filter_map(|fault| match *fault {
            Fault::Pause { node, at, lasts } => Some((node, world(at), world(at + lasts))),
            _ => None,
        });
        let lost = events.iter().filter_map(|event| match event {
            Event::Lost { hold, at, .. } => Some((*hold, *at)),
            _ => None,
        });
        Self { lost: lost.collect(), still: still.collect(), processes }
    }

    /// Whether a hold that ended by itself was told so by `when`, or could not be.
    fn by(&self, hold: &Hold, when: Nanos) -> bool {
        let told = self.lost.get(&hold.op).is_some_and(|at| *at <= when);
        // Who gave it back knew.
        let released = hold.released.is_some_and(|at| at <= when);
        told || released || self.stood_still(hold.process, hold.until, when)
    }

    /// Whether it stood still at any moment between the two.
    fn stood_still(&self, process: u64, from: Nanos, until: Nanos) -> bool {
        let node = self.processes.get(process as usize).copied();
        self.still.iter().any(|(of, start, end)| Some(*of) == node && *start <= until && *end >= from)
    }
}
