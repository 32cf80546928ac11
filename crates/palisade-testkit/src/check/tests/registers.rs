//! Histories of a register that is right: reads and writes of many at a time, each with its effect
//! somewhere between call and answer, some without an answer.

use super::random::Random;
use crate::history::{Answer, Call, Event, OpId, ProcessId};

/// The register's key.
pub(super) const KEY: &str = "lock#data";

/// Which calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Read, write, replace.
    Register,
    /// Get, put, append.
    Kv,
    /// Read, write on condition of a version.
    Versioned,
}

#[derive(Debug, Default)]
struct Store {
    value: Option<String>,
    version: u64,
}

enum Doing {
    Nothing,
    Asked(OpId, Call),
    Done(OpId, Answer),
}

/// Makes a clean history; of a hundred operations `doubtful` have no answer.
pub(super) fn clean(style: Style, processes: usize, ops: usize, doubtful: usize, seed: u64) -> Vec<Event> {
    let mut random = Random::new(seed);
    let mut store = Store::default();
    let mut doing: Vec<(ProcessId, Doing)> =
        (0..processes).map(|process| (process as ProcessId, Doing::Nothing)).collect();
    let mut born = processes as ProcessId;
    let mut ghosts: Vec<Call> = Vec::new();
    let (mut events, mut asked, mut at) = (Vec::new(), 0, 0);
    while (asked as usize) < ops || doing.iter().any(|(_, doing)| !matches!(doing, Doing::Nothing)) {
        at += 1;
        if random.percent(3) && !ghosts.is_empty() {
            store.apply(&ghosts.swap_remove(random.below(ghosts.len())), &mut random);
        }
        let (process, doing) = &mut doing[random.below(processes)];
        *doing = match std::mem::replace(doing, Doing::Nothing) {
            Doing::Nothing if (asked as usize) < ops => {
                asked += 1;
                let call = call(style, &store, &mut random, asked);
                events.push(Event::Call {
                    op: asked,
                    process: *process,
                    at,
                    key: KEY.into(),
                    call: call.clone(),
                });
                Doing::Asked(asked, call)
            }
            Doing::Nothing => Doing::Nothing,
            Doing::Asked(_, call) if call != Call::Read && random.percent(doubtful) => {
                ghosts.extend(random.percent(70).then_some(call));
                *process = born;
                born += 1;
                Doing::Nothing
            }
            Doing::Asked(op, call) => Doing::Done(op, store.apply(&call, &mut random)),
            Doing::Done(op, answer) => {
                events.push(Event::Return { op, at, answer });
                Doing::Nothing
            }
        };
    }
    events
}

fn call(style: Style, store: &Store, random: &mut Random, number: u64) -> Call {
    let small = |random: &mut Random| random.below(5).to_string();
    match (style, random.below(3)) {
        (_, 0) => Call::Read,
        (Style::Register, 1) => Call::Write { value: small(random), version: None, token: None },
        (Style::Register, _) => Call::Cas { from: small(random), to: small(random) },
        (Style::Kv, 1) if random.percent(5) => {
            Call::Write { value: format!("{number} "), version: None, token: None }
        }
        (Style::Kv, _) => Call::Append { value: format!("{number} ") },
        (Style::Versioned, kind) => {
            let guess = store.version.saturating_sub(u64::from(random.percent(20)));
            Call::Write { value: number.to_string(), version: (kind == 1).then_some(guess), token: None }
        }
    }
}

impl Store {
    fn apply(&mut self, call: &Call, random: &mut Random) -> Answer {
        match call {
            Call::Write { version: Some(version), .. } if *version != self.version => {
                Answer::Refused { version: Some(self.version), stale: false }
            }
            Call::Write { value, .. } => self.set(value.clone(), random),
            Call::Append { value } => {
                let value = self.value.clone().unwrap_or_default() + value;
                self.set(value, random)
            }
            Call::Cas { from, to } if self.value.as_ref() == Some(from) => self.set(to.clone(), random),
            Call::Cas { .. } => Answer::Refused { version: Some(self.version), stale: false },
            _ => Answer::Value { value: self.value.clone(), version: Some(self.version) },
        }
    }

    fn set(&mut self, value: String, random: &mut Random) -> Answer {
        self.value = Some(value);
        self.version += 1 + random.below(3) as u64;
        Answer::Done { version: Some(self.version) }
    }
}
