use std::fs;
use std::path::Path;

use palisade_testkit::check::ModelKind;
use palisade_testkit::check::file::{FileError, check_file};
use palisade_testkit::check::linear::Budget;

use crate::exit::{Failure, NO, OK, Outcome, UNAVAILABLE, UNDECIDED};
use crate::output::line;

/// Checks a saved history against the model called `model`; prints `linearizable`, or the smallest
/// part that is not.
pub(crate) fn verify_check(path: &Path, model: &str) -> Outcome {
    let model: ModelKind = model.parse().map_err(Failure::usage)?;
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let bytes = fs::read(path).map_err(|problem| Failure::new(UNAVAILABLE, named(&problem)))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new(UNAVAILABLE, named(&"this is no history: it is no text")))?;
    let verdict = check_file(&text, model, Budget::default()).map_err(|problem| match problem {
        FileError::NoHistory(_) => Failure::new(UNAVAILABLE, named(&problem)),
        FileError::WrongModel(_) => Failure::usage(named(&problem)),
    })?;
    line(&verdict)?;
    Ok(match (verdict.violated.is_empty(), verdict.undecided.is_empty()) {
        (false, _) => NO,
        (true, false) => UNDECIDED,
        (true, true) => OK,
    })
}
