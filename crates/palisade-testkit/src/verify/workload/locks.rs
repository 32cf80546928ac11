use std::time::Duration;

use palisade::Released;

use super::Workload;
use super::held::Held;
use crate::history::{Answer, Call, OpId};
use crate::verify::station::{Chance, Dropped, Station};

/// Acquires, holds, gives back; each in one of the ways a program would.
pub(super) async fn round(workload: Workload, at: &Station, chance: &mut Chance, key: &str) {
    let Some((hold, guard)) = acquire(workload, at, chance, key).await else { return };
    // Who is elected leads for a while.
    let term =
        if workload == Workload::Election { at.ttl.mul_f64(chance.fraction() * 0.1) } else { Duration::ZERO };
    keep(at, hold, &guard, hold_time(at, chance, key) + term).await;
    if let Held::Leader(leadership) = &guard
        && chance.one_in(4)
    {
        // Whether it could still be said is the engine's business; what counts is who believes to lead.
        let _ = leadership.proclaim(format!("{} again", at.name())).await;
    }
    give_back(at, chance, key, hold, guard).await;
}

/// Acquires `key`, and records it.
pub(super) async fn acquire(
    workload: Workload,
    at: &Station,
    chance: &mut Chance,
    key: &str,
) -> Option<(OpId, Held)> {
    let mode = workload.mode(chance.below(4));
    let limit = match chance.below(10) {
        0 => None,
        1 => Some(Duration::from_millis(chance.below(20).into())),
        // Longer than a waiter may be kept waiting: who is forgotten must not be let off.
        _ => Some(at.ttl * 3 + Duration::from_secs(2)),
    };
    let op = at.teller.call(key, Call::Acquire { mode });
    let asked = at.perhaps_cancelled(chance, Held::acquire(at, workload, key, mode, limit)).await;
    answered(at, op, asked)
}

fn answered(
    at: &Station,
    op: OpId,
    asked: Result<palisade::Result<Option<Held>>, Dropped>,
) -> Option<(OpId, Held)> {
    // Whatever went wrong, there is no guard: nobody believes to hold.
    let answer = match &asked {
        Ok(Ok(Some(guard))) => Answer::Granted {
            token: Some(guard.token()),
            slot: guard.slot(),
            until: guard.deadline().map(palisade::BootInstant::as_nanos),
        },
        Ok(Ok(None)) => Answer::Failed { reason: "not in time".to_owned() },
        Ok(Err(error)) => Answer::Failed { reason: error.to_string() },
        Err(dropped) => Answer::Failed { reason: dropped.to_string() },
    };
    at.teller.answer(op, answer);
    Some((op, asked.ok()?.ok()??))
}

/// Acquires `key` once and gives it back at once; says whether it could be had within `bound`.
pub(super) async fn take_once(workload: Workload, at: &Station, key: &str, bound: Duration) -> bool {
    let mode = workload.mode(0);
    let op = at.teller.call(key, Call::Acquire { mode });
    let asked = Held::acquire(at, workload, key, mode, Some(bound)).await;
    let Some((hold, guard)) = answered(at, op, Ok(asked)) else { return false };
    release(at, key, hold, async { Ok(guard.release().await) }).await;
    true
}

/// How long to hold: mostly a moment, so that much happens; some for long enough that a fault often
/// strikes a holder. On the first key of each kind often beyond the TTL, so that renewals matter:
/// on all it would leave time for nothing else.
fn hold_time(at: &Station, chance: &mut Chance, key: &str) -> Duration {
    if key.ends_with("/0") && chance.one_in(4) {
        return at.ttl.mul_f64(chance.fraction() * 2.5);
    }
    match chance.below(20) {
        0..=2 => Duration::from_millis(chance.below(20).into()),
        3..=11 => Duration::from_millis(chance.below(4).into()),
        _ => Duration::ZERO,
    }
}

/// Holds for `time`, unless it is told that it is lost.
pub(super) async fn keep(at: &Station, hold: OpId, guard: &Held, time: Duration) {
    if time.is_zero() {
        // Lets others run meanwhile: that is when a second holder would show.
        return tokio::task::yield_now().await;
    }
    let end = tokio::time::Instant::now() + time;
    let mut lost = std::pin::pin!(guard.lost());
    while tokio::time::Instant::now() < end {
        // Says now and then that it still believes: a renewed guard names later deadlines.
        let next = (tokio::time::Instant::now() + at.ttl / 5).min(end);
        tokio::select! {
            biased;
            reason = &mut lost => return at.teller.lost(hold, &reason.to_string()),
            () = tokio::time::sleep_until(next) => at.teller.ask(hold, guard),
        }
    }
}

/// Releases, or drops as a program that returns early would, and records it.
pub(super) async fn give_back(at: &Station, chance: &mut Chance, key: &str, hold: OpId, guard: Held) {
    at.teller.ask(hold, &guard);
    if chance.one_in(8) {
        at.teller.call(key, Call::Release { hold: Some(hold) });
        return drop(guard);
    }
    release(at, key, hold, at.perhaps_cancelled(chance, guard.release())).await;
}

async fn release(
    at: &Station,
    key: &str,
    hold: OpId,
    releasing: impl Future<Output = Result<palisade::Result<Released>, Dropped>>,
) {
    let op = at.teller.call(key, Call::Release { hold: Some(hold) });
    let answer = match releasing.await {
        Ok(Ok(released)) => Answer::Released { in_time: released == Released::InTime },
        Ok(Err(error)) => Answer::Unknown { reason: error.to_string() },
        Err(dropped) => Answer::Unknown { reason: dropped.to_string() },
    };
    at.teller.answer(op, answer);
}
