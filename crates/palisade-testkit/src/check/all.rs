use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::exclusion::Exclusion;
use super::fenced::Lock;
use super::kind::Subject;
use super::linear::{Budget, Outcome};
use super::progress::Excuses;
use super::{
    ModelKind, Undecided, Violation, belief, fenced, lock_of, lost, order, progress, stolen, tokens,
};
use crate::history::{Answer, Call, Ended, History, Hold, HoldMode, Nanos, Op};

/// How many keys are looked at in parallel.
const THREADS: usize = 2;

/// What a history is held to.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Within this the next one comes in, where somebody waits, nobody holds and nothing disturbs;
    /// the TTL is part of it.
    pub progress: Duration,
    /// Whether waiters are promised to be served in the order in which they came.
    pub fifo: bool,
    /// What the linearizability search of one key may cost.
    pub linear: Budget,
}

/// How durations spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Spread {
    /// How many there are.
    pub count: usize,
    /// Half are not longer, in nanoseconds.
    pub p50: Nanos,
    /// 99 of a hundred are not longer.
    pub p99: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl Spread {
    /// The spread of `times`.
    pub fn of(mut times: Vec<Nanos>) -> Self {
        times.sort_unstable();
        let count = times.len();
        let at = |percent: usize| times.get((count * percent / 100).min(count.saturating_sub(1))).copied();
        let (p50, p99) = (at(50).unwrap_or(0), at(99).unwrap_or(0));
        Self { count, p50, p99, max: times.last().copied().unwrap_or(0) }
    }
}

/// What came of checking a history.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Findings {
    /// What must never be, and was; by the time it showed.
    pub violations: Vec<Violation>,
    /// What shows that holders overlapped after a fault had broken what the engine's exclusion rests
    /// on. No violation: it is what the fence is for.
    pub overlaps: Vec<Violation>,
    /// Why they are none.
    pub overlaps_excused: Option<String>,
    /// What could not be decided.
    pub undecided: Vec<Undecided>,
    /// How many operations were checked.
    pub ops_checked: usize,
    /// How many grants there were.
    pub grants: usize,
    /// How many updates were acknowledged and lost.
    pub lost_updates: usize,
    /// How many writes were refused because a later holder had been there.
    pub stale_refused: usize,
    /// For how long progress was judged, over all keys: somebody waited, and nothing disturbed.
    pub progress_judged: Duration,
    /// From the death of a holder to the next grant, where somebody waited.
    pub takeovers: Spread,
    /// From asking to holding.
    pub waits: Spread,
    /// From holding to giving back.
    pub holds: Spread,
}

impl fmt::Display for Findings {
    /// The verdict, and some of what led to it, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for violation in &self.violations {
            *counts.entry(violation.checker).or_default() += 1;
        }
        match (self.violations.len(), self.undecided.len()) {
            (0, 0) => writeln!(f, "nothing was violated")?,
            (0, _) => writeln!(f, "undecided")?,
            (count, _) => {
                let by_checker: Vec<String> =
                    counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
                writeln!(f, "{count} violations: {}", by_checker.join(", "))?;
            }
        }
        if let Some(why) = &self.overlaps_excused {
            writeln!(f, "{} overlaps of holders, which are no violation: {why}", self.overlaps.len())?;
        }
        let mut shown: HashMap<&str, usize> = HashMap::new();
        for violation in &self.violations {
            let count = shown.entry(violation.checker).or_default();
            *count += 1;
            if *count <= Self::SHOWN {
                let key = if violation.key.is_empty() { "-" } else { &violation.key };
                writeln!(f, "  {} {key}: {}", violation.checker, violation.what)?;
            }
        }
        for undecided in self.undecided.iter().take(Self::SHOWN) {
            let key = if undecided.key.is_empty() { "-" } else { &undecided.key };
            writeln!(f, "  undecided: {} {key}: {}", undecided.checker, undecided.why)?;
        }
        Ok(())
    }
}

impl Findings {
    /// How many violations of each checker are printed.
    const SHOWN: usize = 3;

    /// Whether nothing is wrong and nothing undecided.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.undecided.is_empty()
    }
}

/// One key, with all that concerns it.
struct Key<'h> {
    name: Arc<str>,
    ops: Vec<&'h Op>,
    holds: Vec<&'h Hold>,
    lock: Lock,
}

/// What was found on some keys.
#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    /// What shows that mutual exclusion, and what rests on it, failed.
    overlaps: Vec<Violation>,
    undecided: Vec<Undecided>,
    lost: usize,
    takeovers: Vec<Nanos>,
    judged: Duration,
}

/// What keys are judged by.
struct Ground<'h> {
    history: &'h History,
    excuses: Excuses,
    exclusion: Exclusion,
    bounds: &'h Bounds,
}

/// Runs every checker over a history: the sweeps over all keys, and the linearizability search with
/// the model that the calls on each key ask for.
pub fn all(history: &History, bounds: &Bounds) -> Findings {
    let holds = history.holds();
    let keys = keys(history, &holds);
    let (excuses, exclusion) = (Excuses::of(history), Exclusion::of(history));
    let ground = Ground { history, excuses, exclusion, bounds };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Found::default();
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            key.check(&ground, &mut found);
        }
        found
    };
    let parts: Vec<Found> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..THREADS.min(keys.len())).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let theirs = threads.into_iter().map(|thread| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(mine).chain(theirs).collect()
    });
    gather(&ground, &holds, parts)
}

fn gather(ground: &Ground<'_>, holds: &[Hold], parts: Vec<Found>) -> Findings {
    let Ground { history, exclusion, .. } = ground;
    let stale = |op: &&Op| matches!(op.answer, Answer::Refused { stale: true, .. });
    let given_back = holds.iter().filter(|hold| hold.ended == Ended::Released);
    let mut findings = Findings {
        ops_checked: history.ops.len(),
        grants: holds.len(),
        stale_refused: history.ops.iter().filter(stale).count(),
        waits: Spread::of(holds.iter().map(|hold| hold.from.saturating_sub(hold.asked)).collect()),
        holds: Spread::of(given_back.map(|hold| hold.until - hold.from).collect()),
        ..Findings::default()
    };
    let mut takeovers = Vec::new();
    for part in parts {
        let (violations, excused) = exclusion.judge(part.overlaps);
        findings.violations.extend(part.violations.into_iter().chain(violations));
        findings.overlaps.extend(excused);
        findings.undecided.extend(part.undecided);
        findings.lost_updates += part.lost;
        findings.progress_judged += part.judged;
        takeovers.extend(part.takeovers);
    }
    findings.takeovers = Spread::of(takeovers);
    findings.overlaps_excused = exclusion.reason();
    for found in [&mut findings.violations, &mut findings.overlaps] {
        found.sort_by(|a, b| (a.at, &a.key, a.checker).cmp(&(b.at, &b.key, b.checker)));
    }
    findings.undecided.sort_by(|a, b| (&a.key, a.checker).cmp(&(&b.key, b.checker)));
    findings
}

fn keys<'h>(history: &'h History, holds: &'h [Hold]) -> Vec<Key<'h>> {
    let mut by_key: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    let ops: BTreeMap<Arc<str>, Vec<&Op>> = history.by_key();
    let apart = super::without_one_fence(history);
    let lock = |name: &str| match lock_of(name).filter(|lock| ops.contains_key(*lock)) {
        None => Lock { fenced: true, granted: None },
        Some(lock) => {
            let holds = by_key.get(lock).map(Vec::as_slice).unwrap_or_default();
            let granted = holds.iter().filter_map(|hold| hold.token).collect();
            Lock { fenced: !apart.contains(lock), granted: Some(granted) }
        }
    };
    let locks: Vec<Lock> = ops.keys().map(|name| lock(name)).collect();
    ops.into_iter()
        .zip(locks)
        .map(|((name, ops), lock)| {
            let holds = by_key.get(&*name).cloned().unwrap_or_default();
            Key { name, ops, holds, lock }
        })
        .collect()
}

impl Key<'_> {
    fn check(&self, ground: &Ground<'_>, found: &mut Found) {
        let Ground { history, excuses, exclusion, bounds } = ground;
        let (violations, overlaps) = (&mut found.violations, &mut found.overlaps);
        tokens::check(&self.holds, violations);
        tokens::where_they_exclude(&self.holds, overlaps);
        belief::check(&self.holds, overlaps);
        stolen::check(&self.ops, &self.holds, overlaps);
        fenced::check(&self.ops, &self.lock, violations);
        found.judged +=
            progress::check(&self.ops, &self.holds, history, excuses, bounds.progress, violations);
        if bounds.fifo {
            order::check(&self.ops, &self.holds, excuses, bounds.progress, overlaps);
        }
        found.takeovers.extend(progress::takeovers(&self.holds));
        let set = lost::check(&self.ops, history.calm_since);
        found.lost += set.lost;
        violations.extend(set.violations);
        found.undecided.extend(set.undecided);
        // No order of operations explains holders that overlap: then locks are left to the sweeps.
        if let Some(kind) = self.model().filter(|_| exclusion.holds() || self.holds.is_empty()) {
            self.linear(kind, bounds, found);
        }
    }

    fn linear(&self, kind: ModelKind, bounds: &Bounds, found: &mut Found) {
        let subject = Subject { ops: &self.ops, holds: Some(&self.holds), fenced: self.lock.fenced };
        let key = self.name.to_string();
        match subject.judge(kind, bounds.linear).map(|(_, searched)| searched.outcome) {
            Ok(Outcome::Linearizable) => {}
            Ok(Outcome::Violated(part)) => {
                let at = part.rows.get(part.unexplained).map_or(0, |row| row.ret.unwrap_or(row.call));
                let what = format!("{kind}: {}", part.sentence());
                found.violations.push(Violation { checker: "linear", key, at, what, ops: part.ops() });
            }
            Ok(Outcome::Undecided(why)) | Err(why) => {
                found.undecided.push(Undecided { checker: "linear", key, why });
            }
        }
    }

    /// The model that the calls ask for; `None` where there is none for them.
    fn model(&self) -> Option<ModelKind> {
        let any = |wanted: fn(&Op) -> bool| self.ops.iter().any(|op| wanted(op));
        let mode = |wanted: fn(HoldMode) -> bool| {
            self.ops.iter().any(|op| matches!(op.call, Call::Acquire { mode } if wanted(mode)))
        };
        let alone = mode(|mode| mode == HoldMode::Exclusive);
        let shared = mode(|mode| mode == HoldMode::Shared);
        let slots = mode(|mode| matches!(mode, HoldMode::Slot(_)));
        match (alone, shared, slots) {
            (true, false, false) => return Some(ModelKind::FencedMutex),
            (_, true, false) => return Some(ModelKind::Rw),
            (false, false, true) => return Some(ModelKind::Permits(None)),
            // The sweeps judge what mixes them.
            (_, _, true) => return None,
            (false, false, false) => {}
        }
        if any(|op| matches!(op.call, Call::Add { .. })) {
            return None;
        }
        let versioned = any(|op| {
            matches!(op.call, Call::Write { version: Some(_), .. } | Call::Write { token: Some(_), .. })
                || matches!(
                    op.answer,
                    Answer::Value { version: Some(_), .. } | Answer::Done { version: Some(_) }
                )
        });
        if any(|op| matches!(op.call, Call::Append { .. })) {
            Some(ModelKind::Kv)
        } else if any(|op| matches!(op.call, Call::Cas { .. })) {
            Some(ModelKind::Register)
        } else if versioned {
            Some(ModelKind::Versioned)
        } else {
            any(|op| matches!(op.call, Call::Read | Call::Write { .. })).then_some(ModelKind::Register)
        }
    }
}
