//! Progress (I6): where somebody waits, nobody holds and nothing disturbs, the next one comes in
//! soon.

use std::time::Duration;

use super::{Violation, excludes};
use crate::history::{Call, Ended, FaultKind, History, Hold, Nanos, Op, OpId, ProcessId};

/// A span of time.
pub(super) type Span = (Nanos, Nanos);

/// When nobody, or not everybody, can be held to a bound.
#[derive(Debug, Default)]
pub(super) struct Excuses {
    /// Faults of servers, stalls of the machine, and stopped workers: on an engine without a server
    /// one that stands in the middle of a write holds everyone up.
    everyone: Vec<Span>,
    /// Faults of the line of one process: they concern the keys that it claims.
    lines: Vec<(ProcessId, Span)>,
    /// When a clock was set that claims end by: one that is set back has what is dead last until somebody looks, a TTL
    /// later at most, and for its own TTL from then on.
    clocks: Vec<Nanos>,
    /// The TTL that such a claim is given anew.
    ttl: Nanos,
    /// The end of the history.
    end: Nanos,
}

impl Excuses {
    pub(super) fn of(history: &History) -> Self {
        let (_, end) = history.span();
        let begin = history.begin.as_ref();
        let ttl = begin.map_or(0, |begin| begin.ttl_ms * 1_000_000);
        let decides = begin.is_some_and(|begin| begin.voids_exclusion.contains_key(&FaultKind::Clock));
        let everyone = history.stalls.clone();
        let mut excuses = Self { everyone, lines: Vec::new(), clocks: Vec::new(), ttl, end };
        for fault in &history.faults {
            let span = (fault.from, fault.until.unwrap_or(end));
            if decides && fault.kind == FaultKind::Clock {
                excuses.clocks.extend([span.0, span.1]);
            }
            match (fault.kind, fault.process) {
                // Over as soon as they strike.
                (FaultKind::Kill | FaultKind::Cancel, _) => {}
                (FaultKind::Cut | FaultKind::Slow, Some(process)) => excuses.lines.push((process, span)),
                _ => excuses.everyone.push(span),
            }
        }
        excuses.everyone.retain(|(from, until)| from < until);
        excuses
    }

    /// The excuses that count for a key with these claims.
    fn for_key(&self, claims: &[(ProcessId, Span)]) -> Vec<Span> {
        let touched = |(process, span): &&(ProcessId, Span)| {
            claims.iter().any(|(claimant, claim)| claimant == process && overlap(*claim, *span))
        };
        let lines = self.lines.iter().filter(touched).map(|(_, span)| *span);
        self.everyone.iter().copied().chain(lines).collect()
    }

    /// Whether anything disturbed `process` or everyone meanwhile.
    pub(super) fn covers(&self, process: ProcessId, span: Span) -> bool {
        self.everyone.iter().any(|excuse| overlap(*excuse, span))
            || self.lines.iter().any(|(struck, excuse)| *struck == process && overlap(*excuse, span))
    }
}

fn overlap(a: Span, b: Span) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// What happens at a moment of the sweep. Ends come before beginnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    NoLongerWaits,
    NoLongerHolds,
    NoLongerExcused,
    /// Somebody who held or waited died: its claim may stand for another TTL.
    Died,
    /// Claims end by another clock than before.
    ClockSet,
    Holds,
    Excused,
    Waits(OpId),
}

/// Looks at one key. Returns for how long it was judged: somebody waited, and nothing disturbed.
pub(super) fn check(
    ops: &[&Op],
    holds: &[&Hold],
    history: &History,
    excuses: &Excuses,
    bound: Duration,
    violations: &mut Vec<Violation>,
) -> Duration {
    let waiting = ops.iter().filter(|op| matches!(op.call, Call::Acquire { .. }));
    let mut moments: Vec<(Nanos, Moment)> = Vec::new();
    let mut claims: Vec<(ProcessId, Span)> = Vec::new();
    for op in waiting {
        let died = history.deaths.get(&op.process).copied();
        let end = op.end.or(died).unwrap_or(excuses.end).min(died.unwrap_or(excuses.end));
        if op.start < end {
            moments.push((op.start, Moment::Waits(op.id)));
            moments.push((end, Moment::NoLongerWaits));
            claims.push((op.process, (op.start, end)));
        }
        if op.end.is_none() && died.is_some() {
            moments.push((end, Moment::Died));
        }
    }
    let Some(key) = ops.first().map(|op| op.key.to_string()) else { return Duration::ZERO };
    if moments.is_empty() {
        return Duration::ZERO;
    }
    for hold in holds {
        moments.push((hold.from, Moment::Holds));
        // Even a grant that was over at once shows that the lock moves on.
        moments.push((hold.until.max(hold.from + 1), Moment::NoLongerHolds));
        claims.push((hold.process, (hold.from, hold.until)));
        if hold.ended == Ended::Died {
            moments.push((hold.until, Moment::Died));
        }
    }
    for (from, until) in excuses.for_key(&claims) {
        moments.push((from, Moment::Excused));
        moments.push((until, Moment::NoLongerExcused));
    }
    moments.extend(excuses.clocks.iter().map(|at| (*at, Moment::ClockSet)));
    moments.sort_unstable();
    let mut sweep = Sweep { key: &key, bound, ttl: excuses.ttl, ..Sweep::default() };
    for (at, moment) in moments {
        sweep.turn(at, moment, violations);
    }
    Duration::from_nanos(sweep.judged)
}

/// One key over time. Excuses stop the clock; only a grant, a death, an empty queue or another clock set it back.
#[derive(Debug, Default)]
struct Sweep<'a> {
    key: &'a str,
    bound: Duration,
    ttl: Nanos,
    waiting: i64,
    holding: i64,
    excused: i64,
    now: Nanos,
    /// For how long somebody has waited while nobody held and nothing disturbed.
    idle: Nanos,
    /// How much longer than the bound that may be.
    more: Nanos,
    reported: bool,
    judged: Nanos,
    last_waiter: Option<OpId>,
}

impl Sweep<'_> {
    fn turn(&mut self, at: Nanos, moment: Moment, violations: &mut Vec<Violation>) {
        let passed = at - std::mem::replace(&mut self.now, at).min(at);
        if self.waiting > 0 && self.excused == 0 {
            self.judged += passed;
            self.idle += if self.holding == 0 { passed } else { 0 };
        }
        let took = Duration::from_nanos(self.idle);
        let bound = self.bound + Duration::from_nanos(self.more);
        if took > bound && !self.reported {
            self.reported = true;
            violations.push(Violation {
                checker: "progress",
                key: self.key.to_owned(),
                at,
                what: format!(
                    "somebody waited, nobody held and nothing disturbed for {took:?}; the bound is {bound:?}"
                ),
                ops: self.last_waiter.into_iter().collect(),
            });
        }
        match moment {
            Moment::Waits(op) => {
                self.waiting += 1;
                self.last_waiter = Some(op);
            }
            Moment::NoLongerWaits => self.waiting -= 1,
            Moment::Holds => self.holding += 1,
            Moment::NoLongerHolds => self.holding -= 1,
            Moment::Excused => self.excused += 1,
            Moment::NoLongerExcused => self.excused -= 1,
            Moment::Died => {}
            Moment::ClockSet => self.more = self.ttl,
        }
        if self.waiting == 0 || matches!(moment, Moment::Holds | Moment::Died | Moment::ClockSet) {
            (self.idle, self.reported) = (0, false);
        }
        if moment == Moment::Holds {
            self.more = 0;
        }
    }
}

/// How long it took from the death of each who held to the next grant that it had kept out, where
/// that one was waiting already. Grants come in the order in which they were told.
pub(super) fn takeovers(holds: &[&Hold]) -> Vec<Nanos> {
    let dead = holds.iter().filter(|hold| hold.ended == Ended::Died);
    let times = dead.filter_map(|hold| {
        let next = holds.partition_point(|other| other.from <= hold.until);
        let next = holds[next..].iter().take(100).find(|next| excludes(hold, next))?;
        (next.asked <= hold.until).then_some(next.from - hold.until)
    });
    times.collect()
}
