use bytes::Bytes;
use palisade::{Condition, Effect, Error, Stale, Written};

use super::Workload;
use super::locks::{acquire, give_back, keep};
use crate::check::register_of;
use crate::history::{Answer, Call};
use crate::verify::station::{Chance, Dropped, Station};

/// A read-modify-write under a lock and through its fence.
///
/// Now and then the holder dawdles past its TTL and writes all the same: the fence must refuse it
/// if anyone came after.
pub(super) async fn fenced_round(at: &Station, chance: &mut Chance, key: &str) {
    let Some((hold, guard)) = acquire(Workload::Fence, at, chance, key).await else { return };
    let data = register_of(key);
    let Ok(register) = at.registers.register(&data) else { return };
    let read = at.teller.call(&data, Call::Open { token: Some(guard.token()) });
    match register.fenced(&guard).await {
        Ok(opened) => {
            let entry = opened.opened();
            at.teller.answer(read, value(entry.value.as_ref(), entry.version.get()));
            let dawdle =
                if chance.one_in(50) { at.ttl.mul_f64(chance.fraction() * 1.5) } else { at.moment(chance) };
            keep(at, hold, &guard, dawdle).await;
            let next = at.teller.unique();
            let token = Some(guard.token());
            let write = at.teller.call(&data, Call::Write { value: next.clone(), version: None, token });
            let answer = match opened.write(next).await {
                Ok(version) => Answer::Done { version: Some(version.get()) },
                Err(stale) => refused(stale),
            };
            at.teller.answer(write, answer);
        }
        Err(stale) => at.teller.answer(read, refused(stale)),
    }
    give_back(at, chance, key, hold, guard).await;
}

/// A read-modify-write that goes by the version: no lock at all.
pub(super) async fn versioned_round(at: &Station, chance: &mut Chance, key: &str) {
    let Ok(register) = at.registers.register(key) else { return };
    let read = at.teller.call(key, Call::Read);
    let entry = match register.read().await {
        Ok(entry) => entry,
        Err(error) => return at.teller.answer(read, Answer::Failed { reason: error.to_string() }),
    };
    at.teller.answer(read, value(entry.value.as_ref(), entry.version.get()));
    let condition =
        if chance.one_in(10) { Condition::always() } else { Condition::always().version(entry.version) };
    let next = at.teller.unique();
    let expected = condition.version.map(palisade::Version::get);
    let write = at.teller.call(key, Call::Write { value: next.clone(), version: expected, token: None });
    let written = at.perhaps_cancelled(chance, register.write(next, condition)).await;
    at.teller.answer(write, outcome(written));
}

fn outcome(written: Result<palisade::Result<Written>, Dropped>) -> Answer {
    match written {
        Ok(Ok(Written::Done(version))) => Answer::Done { version: Some(version.get()) },
        Ok(Ok(Written::Refused(refusal))) => {
            Answer::Refused { version: Some(refusal.current.version.get()), stale: false }
        }
        Ok(Err(error)) => failure(&error),
        Err(dropped) => Answer::Unknown { reason: dropped.to_string() },
    }
}

pub(super) fn value(value: Option<&Bytes>, version: u64) -> Answer {
    let text = value.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Answer::Value { value: text, version: Some(version) }
}

pub(super) fn refused(stale: Stale) -> Answer {
    match stale {
        Stale::Fenced { found, .. } => Answer::Refused { version: Some(found.version.get()), stale: true },
        Stale::Refused(refusal) => {
            Answer::Refused { version: Some(refusal.current.version.get()), stale: false }
        }
        Stale::Failed(error) => failure(&error),
        other => Answer::Unknown { reason: other.to_string() },
    }
}

fn failure(error: &Error) -> Answer {
    let reason = error.to_string();
    match error.effect() {
        Effect::None => Answer::Failed { reason },
        Effect::Unknown => Answer::Unknown { reason },
    }
}
