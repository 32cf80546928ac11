//! A history laid out for drawing: lanes, rows, and what is worth showing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::check::Violation;
use crate::history::{Answer, Call, Ended, FaultKind, FaultSpan, History, Hold, Nanos, Op, OpId, ProcessId};

/// The picture has no more lanes for keys.
const LANES: usize = 300;
/// A lane has no more rows for holds that overlap; what does not fit is drawn in the last.
const ROWS: usize = 12;
/// The holds of a key that was not held more often are all worth drawing.
const SELDOM: usize = 40;
/// No more workloads are told apart; the last stands for all others.
const WORKLOADS: usize = 12;

/// A history, laid out.
pub(super) struct Scene<'a> {
    pub(super) history: &'a History,
    pub(super) violations: &'a [Violation],
    /// The first moment that is drawn.
    pub(super) start: Nanos,
    /// The last moment that is drawn.
    pub(super) end: Nanos,
    /// All holds, by the time they began.
    pub(super) holds: Vec<Hold>,
    /// The row of each hold within its lane.
    pub(super) rows: Vec<usize>,
    /// The keys that have a lane: first those with violations, then the others, by name.
    pub(super) lanes: Vec<Lane>,
    /// How many keys there are, with a lane or without.
    pub(super) keys: usize,
    /// The names of the workloads.
    pub(super) workloads: Vec<String>,
    /// All processes, by the time they began.
    pub(super) workers: Vec<Worker>,
    lane_of: HashMap<Arc<str>, usize>,
}

/// The lane of a key.
pub(super) struct Lane {
    pub(super) key: Arc<str>,
    /// Which workload made it: a place in [`Scene::workloads`].
    pub(super) workload: usize,
    /// How many holds it shows at one time.
    pub(super) rows: usize,
}

/// The life of a process.
pub(super) struct Worker {
    pub(super) process: ProcessId,
    /// A process takes the lane of one that is dead.
    pub(super) lane: usize,
    pub(super) born: Nanos,
    /// When it was killed, or else when it was last heard of.
    pub(super) until: Nanos,
    pub(super) died: bool,
}

impl<'a> Scene<'a> {
    pub(super) fn new(history: &'a History, violations: &'a [Violation]) -> Self {
        let (start, end) = bounds(history);
        let holds = history.holds();
        let (keys, chosen) = chosen_keys(history, violations);
        let mut workloads: Vec<String> = Vec::new();
        let lanes =
            chosen.into_iter().map(|key| Lane { workload: enter(&mut workloads, &key), key, rows: 1 });
        let lanes: Vec<Lane> = lanes.collect();
        let lane_of = lanes.iter().enumerate().map(|(place, lane)| (Arc::clone(&lane.key), place)).collect();
        let workers = workers(history);
        let rows = Vec::new();
        let mut scene =
            Self { history, violations, start, end, holds, rows, lanes, keys, workloads, workers, lane_of };
        scene.stack();
        scene
    }

    /// The lane of a key, if it has one.
    pub(super) fn lane(&self, key: &str) -> Option<usize> {
        self.lane_of.get(key).copied()
    }

    /// Microseconds since the start; what lies outside the picture is drawn at its edge.
    pub(super) fn micros(&self, at: Nanos) -> u64 {
        (at.clamp(self.start, self.end) - self.start) / 1_000
    }

    /// Gives each hold a row in its lane, so that none hides another.
    fn stack(&mut self) {
        let mut ends: Vec<Vec<Nanos>> = self.lanes.iter().map(|_| Vec::new()).collect();
        for hold in &self.holds {
            let Some(lane) = self.lane_of.get(&hold.key) else {
                self.rows.push(0);
                continue;
            };
            let ends = &mut ends[*lane];
            let free = ends.iter().position(|end| *end <= hold.from);
            let row = free.unwrap_or(ends.len()).min(ROWS - 1);
            if row == ends.len() {
                ends.push(0);
            }
            ends[row] = ends[row].max(hold.until);
            self.rows.push(row);
        }
        for (lane, ends) in self.lanes.iter_mut().zip(ends) {
            lane.rows = ends.len();
        }
    }

    /// How much each hold deserves to be drawn: 0 for what touches a violation, 1 for what is long or
    /// of a key that was seldom held, which never are many, 2 for what touches a fault or did not end
    /// with a release, 3 for the rest; none without a lane.
    pub(super) fn hold_ranks(&self) -> Vec<Option<u8>> {
        let shown: HashSet<OpId> =
            self.violations.iter().flat_map(|violation| &violation.ops).copied().collect();
        let mut moments: HashMap<&str, BTreeSet<Nanos>> = HashMap::new();
        for violation in self.violations {
            moments.entry(&violation.key).or_default().insert(violation.at);
        }
        let edges = Edges::new(&self.history.faults);
        let long = (self.end - self.start) / 200;
        let mut times = vec![0_usize; self.lanes.len()];
        self.holds.iter().filter_map(|hold| self.lane(&hold.key)).for_each(|lane| times[lane] += 1);
        let rank = |hold: &Hold, times: usize| {
            let violated = |times: &BTreeSet<Nanos>| times.range(hold.from..=hold.until).next().is_some();
            if shown.contains(&hold.op) || moments.get(&*hold.key).is_some_and(violated) {
                0
            } else if times <= SELDOM || hold.until.saturating_sub(hold.asked) >= long {
                1
            } else {
                3 - u8::from(hold.ended != Ended::Released || edges.touch(hold))
            }
        };
        self.holds.iter().map(|hold| self.lane(&hold.key).map(|lane| rank(hold, times[lane]))).collect()
    }

    /// How much each operation that is no hold deserves to be drawn: 0 for what shows a violation, 1
    /// for what was refused as stale or is unknown, 2 for other writes and for claims in vain. What
    /// else there is, reads and releases, is not drawn.
    pub(super) fn op_ranks(&self) -> Vec<Option<u8>> {
        let shown: HashSet<OpId> =
            self.violations.iter().flat_map(|violation| &violation.ops).copied().collect();
        let rank = |op: &Op| match (&op.call, &op.answer) {
            (Call::Acquire { .. }, Answer::Granted { .. }) => None,
            _ if shown.contains(&op.id) => Some(0),
            (Call::Read | Call::Open { .. } | Call::Release { .. }, _) => None,
            (_, Answer::Refused { stale: true, .. } | Answer::Unknown { .. }) => Some(1),
            _ => Some(2),
        };
        self.history.ops.iter().map(|op| self.lane(&op.key).and_then(|_| rank(op))).collect()
    }
}

/// Whether a fault of this kind strikes at one moment, rather than lasting until it is healed.
pub(super) fn is_momentary(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Kill | FaultKind::Cancel)
}

/// The workload that made a key: what stands before its first `/`.
pub(super) fn workload_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(workload, _)| workload)
}

/// The place of a key's workload, which is added if it is new.
fn enter(workloads: &mut Vec<String>, key: &str) -> usize {
    let name = workload_of(key);
    if let Some(place) = workloads.iter().position(|known| known == name) {
        return place;
    }
    if workloads.len() < WORKLOADS {
        workloads.push(if workloads.len() + 1 < WORKLOADS { name } else { "others" }.to_owned());
    }
    workloads.len() - 1
}

/// From the first to the last thing that happened.
fn bounds(history: &History) -> (Nanos, Nanos) {
    let (first, last) = history.span();
    let faults = &history.faults;
    let ends =
        faults.iter().map(|fault| fault.until.unwrap_or(fault.from)).chain(history.deaths.values().copied());
    if history.ops.is_empty() {
        let first = faults.first().map_or(0, |fault| fault.from);
        return (first, ends.max().unwrap_or(first).max(first));
    }
    let first = faults.first().map_or(first, |fault| fault.from.min(first));
    (first, ends.max().unwrap_or(last).max(last).max(first))
}

/// How many keys there are, and those that get a lane, in the order of lanes.
fn chosen_keys(history: &History, violations: &[Violation]) -> (usize, Vec<Arc<str>>) {
    let violated: HashSet<&str> = violations.iter().map(|violation| &*violation.key).collect();
    let mut used: HashMap<&Arc<str>, usize> = HashMap::new();
    for op in &history.ops {
        *used.entry(&op.key).or_default() += 1;
    }
    let mut keys: Vec<_> =
        used.into_iter().map(|(key, ops)| (!violated.contains(&**key), usize::MAX - ops, key)).collect();
    let all = keys.len();
    keys.sort_unstable();
    keys.truncate(LANES);
    keys.sort_unstable_by_key(|(clean, _, key)| (*clean, *key));
    (all, keys.into_iter().map(|(_, _, key)| Arc::clone(key)).collect())
}

/// The lives of all processes that did something.
fn workers(history: &History) -> Vec<Worker> {
    let mut lives: BTreeMap<ProcessId, (Nanos, Nanos)> = BTreeMap::new();
    for op in &history.ops {
        let heard = op.end.unwrap_or(op.start);
        let (_, last) = lives.entry(op.process).or_insert((op.start, heard));
        *last = heard.max(*last);
    }
    let live = |(process, (born, last)): (ProcessId, (Nanos, Nanos))| {
        let died = history.deaths.get(&process).copied();
        Worker { process, lane: 0, born, until: died.unwrap_or(last), died: died.is_some() }
    };
    let mut workers: Vec<Worker> = lives.into_iter().map(live).collect();
    workers.sort_by_key(|worker| (worker.born, worker.process));
    let mut taken: Vec<Nanos> = Vec::new();
    for worker in &mut workers {
        worker.lane = taken.iter().position(|end| *end <= worker.born).unwrap_or(taken.len());
        match taken.get_mut(worker.lane) {
            Some(end) => *end = worker.until,
            None => taken.push(worker.until),
        }
    }
    workers
}

/// When faults struck and were healed.
#[derive(Default)]
struct Edges {
    everyone: BTreeSet<Nanos>,
    of_process: HashMap<ProcessId, BTreeSet<Nanos>>,
}

impl Edges {
    fn new(faults: &[FaultSpan]) -> Self {
        let mut edges = Self::default();
        for fault in faults {
            let times = match fault.process {
                Some(process) => edges.of_process.entry(process).or_default(),
                None => &mut edges.everyone,
            };
            times.insert(fault.from);
            times.extend(fault.until);
        }
        edges
    }

    /// Whether one lies between asking for a hold and its end.
    fn touch(&self, hold: &Hold) -> bool {
        let within =
            |times: &BTreeSet<Nanos>| times.range(hold.asked.min(hold.until)..=hold.until).next().is_some();
        within(&self.everyone) || self.of_process.get(&hold.process).is_some_and(within)
    }
}
