use super::Violation;
use crate::history::{Answer, Call, Ended, Hold, Op};

/// Only the owner of a grant ends it (I4): a release that found nothing to release, although the
/// deadline lay ahead and no loss had been told, means that somebody else gave it back.
pub(super) fn check(ops: &[&Op], holds: &[&Hold], violations: &mut Vec<Violation>) {
    let holds: std::collections::HashMap<_, _> = holds.iter().map(|hold| (hold.op, hold)).collect();
    for op in ops {
        let (Call::Release { hold: Some(id) }, Answer::Released { in_time: false }) = (&op.call, &op.answer)
        else {
            continue;
        };
        let (Some(hold), Some(end)) = (holds.get(id), op.end) else { continue };
        // Later than the deadline it may rightly have expired while it was being released.
        if hold.ended == Ended::Released && hold.deadline.is_some_and(|deadline| end < deadline) {
            violations.push(Violation {
                checker: "stolen",
                key: hold.key.to_string(),
                at: op.start,
                what: format!(
                    "process {} released what it held for sure, and it was gone: somebody else had ended it",
                    hold.process
                ),
                ops: vec![hold.op, op.id],
            });
        }
    }
}
