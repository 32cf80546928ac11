//! EDN maps, one per operation and phase: in one vector as knossos has them, or one after the
//! other.

use super::edn::{Edn, Reader};
use super::record::{Phase, Record};

pub(super) fn records(text: &str) -> Result<Vec<Record>, String> {
    let mut reader = Reader::new(text.trim_start_matches('\u{feff}'), 1);
    let close = match reader.peek() {
        Some('[') => Some(']'),
        Some('(') => Some(')'),
        _ => None,
    };
    if close.is_some() {
        reader.accept('[');
        reader.accept('(');
    }
    let mut records = Vec::new();
    loop {
        match (reader.peek(), close) {
            (None, None) => return Ok(records),
            (None, Some(close)) => return Err(reader.wrong(format_args!("the last {close:?} is missing"))),
            (Some(next), Some(close)) if next == close => {
                reader.accept(close);
                return match reader.peek() {
                    None => Ok(records),
                    Some(_) => Err(reader.wrong("something follows the end of the history")),
                };
            }
            _ => {
                let line = reader.line();
                let map = reader.value()?;
                records.extend(record(&map, line)?);
            }
        }
    }
}

/// What a map says; `None` if it is not about an operation.
fn record(map: &Edn, line: usize) -> Result<Option<Record>, String> {
    let wrong = |problem: String| format!("line {line}: {problem}");
    let Edn::Map(_) = map else { return Err(wrong(format!("{map} is no map"))) };
    let field = |name: &str| map.get(name).ok_or_else(|| wrong(format!("there is no :{name}")));
    let process = field("process")?;
    let Some(process) = process.number() else {
        return match process {
            Edn::Keyword(_) | Edn::Nil => Ok(None),
            other => Err(wrong(format!("{other} is no process"))),
        };
    };
    let phase = field("type")?;
    let phase = phase.name().and_then(Phase::of).ok_or_else(|| wrong(format!("{phase} is no :type")))?;
    let what = field("f")?;
    let what = what.name().ok_or_else(|| wrong(format!("{what} is no :f")))?.to_owned();
    let key = map.get("key").and_then(Edn::some).map(ToString::to_string).unwrap_or_default();
    let value = map.get("value").cloned().unwrap_or(Edn::Nil);
    let error = map.get("error").and_then(Edn::some).map(ToString::to_string);
    Ok(Some(Record { line, process, phase, what, key, value, error }))
}
