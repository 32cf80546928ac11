use super::Workload;
use super::locks::{acquire, give_back, keep};
use super::registers::refused;
use crate::check::register_of;
use crate::history::{Answer, Call};
use crate::verify::station::{Chance, Station};

/// Adds one element to a set, as Jepsen's `lock-set` does: acquire, read, think for up to a TTL,
/// write the whole set, release. The guard is not asked whether it still holds: that is the point.
///
/// What is read is what the fence was opened on, and what is written carries the token.
pub(super) async fn round(at: &Station, chance: &mut Chance, key: &str) {
    let Some((hold, guard)) = acquire(Workload::LockSet, at, chance, key).await else { return };
    let data = register_of(key);
    let Ok(register) = at.registers.register(&data) else { return };
    let element = at.teller.unique();
    let add = at.teller.call(&data, Call::Add { element: element.clone() });
    let answer = match register.fenced(&guard).await {
        Ok(opened) => {
            let set = opened.opened().value.clone().unwrap_or_default();
            keep(at, hold, &guard, at.ttl.mul_f64(chance.fraction())).await;
            let mut set = String::from_utf8_lossy(&set).into_owned();
            if !set.is_empty() {
                set.push(',');
            }
            set.push_str(&element);
            match opened.write(set).await {
                Ok(version) => Answer::Done { version: Some(version.get()) },
                Err(stale) => refused(stale),
            }
        }
        Err(stale) => refused(stale),
    };
    at.teller.answer(add, answer);
    give_back(at, chance, key, hold, guard).await;
}
