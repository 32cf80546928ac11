use std::fs;
use std::path::Path;

use palisade_testkit::check::ModelKind;
use palisade_testkit::check::file::{FileError, FileVerdict, check_everything, check_file};
use palisade_testkit::check::linear::Budget;
use serde_json::json;

use crate::exit::{Failure, NO, OK, Outcome, UNAVAILABLE, UNDECIDED, complain};
use crate::output::{line, raw};

/// Checks a saved history: against the model called `model`, or with every checker there is.
pub(crate) fn verify_check(path: &Path, model: Option<&str>, json: bool) -> Outcome {
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let failure = |problem: FileError| match problem {
        FileError::NoHistory(_) => Failure::new(UNAVAILABLE, named(&problem)),
        FileError::WrongModel(_) => Failure::usage(named(&problem)),
    };
    let model: Option<ModelKind> = model.map(str::parse).transpose().map_err(Failure::usage)?;
    let bytes = fs::read(path).map_err(|problem| Failure::new(UNAVAILABLE, named(&problem)))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new(UNAVAILABLE, named(&"this is no history: it is no text")))?;
    match model {
        Some(model) => held_to(&check_file(&text, model, Budget::default()).map_err(failure)?, json),
        None => {
            let findings = check_everything(&text, Budget::default()).map_err(failure)?;
            if json {
                line(json!(findings))?;
            } else {
                raw(findings.to_string().as_bytes())?;
            }
            Ok(code(findings.violations.is_empty(), findings.undecided.is_empty()))
        }
    }
}

/// Prints `linearizable`, or the smallest part that is not.
fn held_to(verdict: &FileVerdict, json: bool) -> Outcome {
    let code = code(verdict.violated.is_empty(), verdict.undecided.is_empty());
    if json {
        let parts: Vec<_> = verdict
            .violated
            .iter()
            .map(|(key, part)| json!({ "key": key, "part": part.to_string() }))
            .collect();
        line(json!({
            "linearizable": code == OK,
            "model": verdict.model.to_string(),
            "keys": verdict.keys,
            "ops": verdict.ops,
            "not_looked_at": verdict.others,
            "violated": parts,
            "undecided": verdict.undecided,
        }))?;
    } else {
        line(verdict)?;
        if !verdict.others.is_empty() {
            complain(&format!(
                "not looked at, because they are of another kind: {}; leave --model out to check everything",
                verdict.others.join(", ")
            ));
        }
    }
    Ok(code)
}

fn code(nothing_violated: bool, nothing_undecided: bool) -> u8 {
    match (nothing_violated, nothing_undecided) {
        (false, _) => NO,
        (true, false) => UNDECIDED,
        (true, true) => OK,
    }
}
