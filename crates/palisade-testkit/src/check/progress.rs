//! Progress (I6): where somebody waits, nobody holds and nothing disturbs, the next one comes in
//! soon.

use std::time::Duration;

use super::{Violation, excludes};
use crate::history::{Call, Ended, FaultKind, FaultSpan, History, Hold, Nanos, Op, OpId};

/// A span of time.
type Span = (Nanos, Nanos);

/// Spans in which nobody can be held to a bound: faults, and stalls of the machine.
#[derive(Debug, Default)]
pub(super) struct Excuses {
    spans: Vec<Span>,
    /// The end of the history.
    end: Nanos,
}

impl Excuses {
    pub(super) fn of(history: &History) -> Self {
        let (_, end) = history.span();
        // A kill and a cancellation are over as soon as they strike.
        let lasting = |fault: &&FaultSpan| !matches!(fault.kind, FaultKind::Kill | FaultKind::Cancel);
        let faults = history.faults.iter().filter(lasting);
        let faults = faults.map(|fault| (fault.from, fault.until.unwrap_or(end)));
        Self { spans: faults.chain(history.stalls.iter().copied()).collect(), end }
    }
}

/// What happens at a moment of the sweep. Ends come before beginnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    NoLongerWaits,
    NoLongerHolds,
    NoLongerExcused,
    Holds,
    Excused,
    Waits(OpId),
}

/// Looks at one key.
pub(super) fn check(
    ops: &[&Op],
    holds: &[&Hold],
    history: &History,
    excuses: &Excuses,
    bound: Duration,
    violations: &mut Vec<Violation>,
) {
    let waiting = ops.iter().filter(|op| matches!(op.call, Call::Acquire { .. }));
    let mut moments: Vec<(Nanos, Moment)> = Vec::new();
    for op in waiting {
        let died = history.deaths.get(&op.process).copied().unwrap_or(excuses.end);
        let end = op.end.unwrap_or(excuses.end).min(died);
        if op.start < end {
            moments.push((op.start, Moment::Waits(op.id)));
            moments.push((end, Moment::NoLongerWaits));
        }
    }
    let Some(key) = ops.first().map(|op| op.key.to_string()) else { return };
    if moments.is_empty() {
        return;
    }
    for hold in holds {
        moments.push((hold.from, Moment::Holds));
        // Even a grant that was over at once shows that the lock moves on.
        moments.push((hold.until.max(hold.from + 1), Moment::NoLongerHolds));
    }
    for (from, until) in excuses.spans.iter().filter(|(from, until)| from < until) {
        moments.push((*from, Moment::Excused));
        moments.push((*until, Moment::NoLongerExcused));
    }
    moments.sort_unstable();
    sweep(&moments, &key, bound, violations);
}

fn sweep(moments: &[(Nanos, Moment)], key: &str, bound: Duration, violations: &mut Vec<Violation>) {
    let (mut waiting, mut holding, mut excused) = (0_i64, 0_i64, 0_i64);
    let mut idle_since: Option<Nanos> = None;
    let mut last = None;
    for (at, moment) in moments {
        match moment {
            Moment::Waits(op) => {
                waiting += 1;
                last = Some(*op);
            }
            Moment::NoLongerWaits => waiting -= 1,
            Moment::Holds => holding += 1,
            Moment::NoLongerHolds => holding -= 1,
            Moment::Excused => excused += 1,
            Moment::NoLongerExcused => excused -= 1,
        }
        let idle = waiting > 0 && holding == 0 && excused == 0;
        match (idle, idle_since) {
            (true, None) => idle_since = Some(*at),
            (false, Some(since)) => {
                idle_since = None;
                let took = Duration::from_nanos(at - since);
                if took > bound {
                    let what = format!(
                        "somebody waited, nobody held and nothing disturbed for {took:?}; the bound is {bound:?}"
                    );
                    let ops = last.into_iter().collect();
                    violations.push(Violation {
                        checker: "progress",
                        key: key.to_owned(),
                        at: since,
                        what,
                        ops,
                    });
                }
            }
            _ => {}
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
