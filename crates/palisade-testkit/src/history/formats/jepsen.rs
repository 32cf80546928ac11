//! The log of Jepsen's register tests: `INFO  jepsen.util - 0 :invoke :read nil`, with tabs.

use super::edn::{Edn, Reader};
use super::record::{Phase, Record};

/// Process, phase, what, value; `None` for a line that is about something else.
pub(super) fn fields(line: &str) -> Option<[&str; 4]> {
    let (_, rest) = line.split_once("jepsen.util")?;
    let rest = rest.trim_start().strip_prefix('-')?.trim_start();
    let (process, rest) = rest.split_once(char::is_whitespace)?;
    let (phase, rest) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    let (what, value) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    phase.starts_with(':').then_some([process, phase, what, value.trim()])
}

pub(super) fn records(text: &str) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let Some([process, phase, what, value]) = fields(line) else { continue };
        // The nemesis has a name instead of a number.
        let Ok(process) = process.parse() else { continue };
        let wrong = |problem: &str| format!("line {number}: {problem}");
        let phase = Phase::of(phase.trim_start_matches(':'))
            .ok_or_else(|| wrong(&format!("{phase} is neither :invoke, :ok, :fail nor :info")))?;
        let what = what.strip_prefix(':').ok_or_else(|| wrong("what is done is missing"))?.to_owned();
        let value = if value.is_empty() { Edn::Nil } else { Reader::new(value, number).value()? };
        records.push(Record { line: number, process, phase, what, key: String::new(), value, error: None });
    }
    Ok(records)
}
