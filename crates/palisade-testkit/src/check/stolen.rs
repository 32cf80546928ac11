use std::collections::HashMap;
use std::time::Duration;

use super::Violation;
use crate::history::{Answer, Call, Ended, Hold, Nanos, Op};

/// How long before its release a guard must have called itself valid to count as held: a client may
/// give a hold up by itself, but not within the moment between asking its guard and releasing it.
const MOMENT: Nanos = Duration::from_millis(1).as_nanos() as Nanos;

/// Only the owner of a grant ends it (I4): a release that found nothing to release, although the
/// guard had just called itself valid, its deadline lay ahead and no loss had been told, means that
/// somebody else gave it back.
pub(super) fn check(ops: &[&Op], holds: &[&Hold], violations: &mut Vec<Violation>) {
    let holds: HashMap<_, _> = holds.iter().map(|hold| (hold.op, hold)).collect();
    for op in ops {
        let (Call::Release { hold: Some(id) }, Answer::Released { in_time: false }) = (&op.call, &op.answer)
        else {
            continue;
        };
        let (Some(hold), Some(end)) = (holds.get(id), op.end) else { continue };
        let was_valid = hold.valid_at.is_some_and(|at| op.start.saturating_sub(at) <= MOMENT);
        // Later than the deadline it may rightly have expired while it was being released.
        let in_time = hold.deadline.is_some_and(|deadline| end < deadline);
        if hold.ended == Ended::Released && was_valid && in_time {
            violations.push(Violation {
                checker: "stolen",
                key: hold.key.to_string(),
                at: end,
                what: format!(
                    "process {} released what it held for sure, and it was gone: somebody else had ended it",
                    hold.process
                ),
                ops: vec![hold.op, op.id],
            });
        }
    }
}
