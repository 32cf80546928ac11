//! From what other programs record to a history.

use std::collections::HashMap;

use palisade_core::Token;

use super::edn::Edn;
use crate::history::{Answer, Call, Event, History, HoldMode, OpId};

/// The call or the end of an operation.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) line: usize,
    pub(super) process: u64,
    pub(super) phase: Phase,
    /// What is done.
    pub(super) what: String,
    pub(super) key: String,
    pub(super) value: Edn,
    /// Why it failed, where that is said.
    pub(super) error: Option<String>,
}

/// What a record tells of its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is asked.
    Invoke,
    /// It is done.
    Ok,
    /// It had no effect.
    Fail,
    /// Nobody knows.
    Info,
}

impl Phase {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "invoke" => Some(Self::Invoke),
            "ok" => Some(Self::Ok),
            "fail" => Some(Self::Fail),
            "info" => Some(Self::Info),
            _ => None,
        }
    }
}

/// Puts records together. The only times they have are their places: what comes first was first.
pub(super) fn assemble(records: Vec<Record>) -> Result<History, String> {
    // A process that asks again without having had an answer left its last question open.
    let mut open: HashMap<u64, (OpId, String, Call)> = HashMap::new();
    let mut events = Vec::with_capacity(records.len());
    let mut ops = 0;
    for (record, at) in records.into_iter().zip(1..) {
        let wrong = |problem: String| format!("line {}: {problem}", record.line);
        if record.phase == Phase::Invoke {
            ops += 1;
            let call = call(&record).map_err(wrong)?;
            open.insert(record.process, (ops, record.what, call.clone()));
            events.push(Event::Call { op: ops, process: record.process, at, key: record.key, call });
            continue;
        }
        let Some((op, what, call)) = open.remove(&record.process) else {
            return Err(wrong(format!("process {} is answered and did not ask", record.process)));
        };
        if what != record.what {
            let (asked, process) = (what, record.process);
            return Err(wrong(format!(
                "process {process} asked to {asked} and is answered to {}",
                record.what
            )));
        }
        let answer = answer(&record, &call).map_err(wrong)?;
        events.push(Event::Return { op, at, answer });
    }
    History::from_events(events)
}

fn call(record: &Record) -> Result<Call, String> {
    let value = || match &record.value {
        Edn::Nil => Err(format!("{} needs a value", record.what)),
        value => Ok(value.to_string()),
    };
    match record.what.as_str() {
        "read" | "get" => Ok(Call::Read),
        "write" | "put" => Ok(Call::Write { value: value()?, version: None, token: None }),
        "append" => Ok(Call::Append { value: value()? }),
        "add" => Ok(Call::Add { element: value()? }),
        "cas" => match &record.value {
            Edn::List(both) if both.len() == 2 => {
                Ok(Call::Cas { from: both[0].to_string(), to: both[1].to_string() })
            }
            other => Err(format!("cas needs [old new], not {other}")),
        },
        "acquire" | "lock" => Ok(Call::Acquire { mode: mode(&record.value) }),
        "acquire-read" | "read-lock" | "acquire-shared" => Ok(Call::Acquire { mode: HoldMode::Shared }),
        "acquire-write" | "write-lock" => Ok(Call::Acquire { mode: HoldMode::Exclusive }),
        "release" | "unlock" | "release-read" | "release-write" | "release-shared" | "read-unlock"
        | "write-unlock" => Ok(Call::Release { hold: None }),
        other => Err(format!("no operation is called {other:?}")),
    }
}

fn mode(value: &Edn) -> HoldMode {
    match value.name() {
        Some("shared" | "read") => HoldMode::Shared,
        _ => HoldMode::Exclusive,
    }
}

fn answer(record: &Record, call: &Call) -> Result<Answer, String> {
    let reason = || record.error.clone().unwrap_or_else(|| record.value.to_string());
    let timed_out = || record.error.is_some() || matches!(record.value, Edn::Keyword(_));
    Ok(match (record.phase, call) {
        (Phase::Info, _) => Answer::Unknown { reason: reason() },
        (Phase::Fail, Call::Cas { .. }) if !timed_out() => Answer::Refused { version: None, stale: false },
        (Phase::Fail, _) => Answer::Failed { reason: reason() },
        (_, Call::Read) => {
            Answer::Value { value: record.value.some().map(ToString::to_string), version: None }
        }
        (_, Call::Acquire { .. }) => {
            Answer::Granted { token: token(&record.value)?, slot: None, until: None }
        }
        (_, Call::Release { .. }) => Answer::Released { in_time: true },
        _ => Answer::Done { version: None },
    })
}

/// The token of a grant: the value itself, or what it calls fence or token. 0 is not known.
fn token(value: &Edn) -> Result<Option<Token>, String> {
    let named = value.get("fence").or_else(|| value.get("token")).unwrap_or(value);
    match named.number() {
        None | Some(0) => Ok(None),
        Some(number) => Token::new(number).map(Some).ok_or_else(|| format!("{number} is no token")),
    }
}
