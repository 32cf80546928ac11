use std::time::Duration;

use super::Violation;
use super::progress::Excuses;
use crate::history::{Call, Hold, Nanos, Op};

/// How many who asked later may come in first: requests cross on their way, and a process that is
/// not scheduled asks late. Far more than that is no crossing.
const OVERTAKEN: usize = 50;

/// First come, first served (I10), where the engine promises it: nobody who waits for longer than
/// `bound`, with nothing in the way, is overtaken again and again.
pub(super) fn check(
    ops: &[&Op],
    holds: &[&Hold],
    excuses: &Excuses,
    bound: Duration,
    violations: &mut Vec<Violation>,
) {
    let bound = Nanos::try_from(bound.as_nanos()).unwrap_or(Nanos::MAX);
    for op in ops {
        let (Call::Acquire { .. }, Some(end)) = (&op.call, op.end) else { continue };
        if end - op.start < bound || excuses.covers(op.process, (op.start, end)) {
            continue;
        }
        // They come by the time they were answered.
        let first = holds.partition_point(|hold| hold.from <= op.start);
        let came_in = holds[first..].iter().take_while(|hold| hold.from < end);
        let overtook = came_in.filter(|hold| hold.asked > op.start).count();
        if overtook > OVERTAKEN {
            violations.push(Violation {
                checker: "order",
                key: op.key.to_string(),
                at: end,
                what: format!(
                    "process {} waited for {:?} while {overtook} who had asked later came in",
                    op.process,
                    Duration::from_nanos(end - op.start)
                ),
                ops: vec![op.id],
            });
        }
    }
}
