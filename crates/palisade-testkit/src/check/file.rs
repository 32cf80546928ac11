//! Checks of saved histories.

use std::fmt;
use std::time::{Duration, Instant};

use super::kind::Subject;
use super::linear::{Budget, Outcome, Part};
use super::{Bounds, Findings, ModelKind};
use crate::history::{Call, Format, History, Hold, Op};

/// What came of checking a file.
#[derive(Debug, Clone)]
pub struct FileVerdict {
    /// Which model the file was held to.
    pub model: ModelKind,
    /// Its format.
    pub format: Format,
    /// How many keys were checked.
    pub keys: usize,
    /// Keys of other kinds, which were not looked at.
    pub others: Vec<String>,
    /// How many operations had a place in the order.
    pub ops: usize,
    /// What is wrong, by key.
    pub violated: Vec<(String, Part)>,
    /// What could not be decided, by key.
    pub undecided: Vec<(String, String)>,
}

impl FileVerdict {
    /// Whether every key is linearizable.
    pub fn is_linearizable(&self) -> bool {
        self.violated.is_empty() && self.undecided.is_empty()
    }
}

/// Why a file could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileError {
    /// It is no history; why, with the line.
    NoHistory(String),
    /// It is one, but not of what the model is about.
    WrongModel(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoHistory(why) | Self::WrongModel(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for FileError {}

/// Checks a history against a model, each key on its own. Its format is told from the text.
///
/// ```
/// use palisade_testkit::check::{ModelKind, file::check_file, linear::Budget};
/// let text = "\
/// {:process 1, :type :invoke, :f :write, :value 1}
/// {:process 1, :type :ok, :f :write, :value 1}
/// {:process 2, :type :invoke, :f :read}
/// {:process 2, :type :ok, :f :read, :value 1}";
/// let verdict = check_file(text, ModelKind::Register, Budget::default()).unwrap();
/// assert_eq!(verdict.to_string(), "linearizable");
/// ```
///
/// A history in which nothing that the model knows was answered for certain shows nothing, and is
/// undecided.
///
/// # Errors
/// If the text is no history, or has nothing in it that the model knows.
pub fn check_file(text: &str, model: ModelKind, budget: Budget) -> Result<FileVerdict, FileError> {
    known_format(text).map_err(FileError::NoHistory)?;
    let (history, format) = History::read(text).map_err(FileError::NoHistory)?;
    check(&history, format, model, budget).map_err(FileError::WrongModel)
}

/// Runs every checker over a history of ours.
///
/// # Errors
/// If the text is no history that `palisade verify` recorded.
pub fn check_everything(text: &str, budget: Budget) -> Result<Findings, FileError> {
    known_format(text).map_err(FileError::NoHistory)?;
    let (history, format) = History::read(text).map_err(FileError::NoHistory)?;
    let Some(begin) = history.begin.as_ref().filter(|_| format == Format::Own) else {
        let why = "a history that palisade verify did not record has to be held to a model";
        return Err(FileError::WrongModel(why.to_owned()));
    };
    // As the run itself was held to; which order its engine promised is not on record.
    let progress = Duration::from_millis(begin.ttl_ms) + Duration::from_secs(1);
    Ok(super::all(&history, &Bounds { progress, fifo: false, linear: budget }))
}

/// The version of our own format.
const FORMAT: u64 = 1;

/// Refuses a history of ours in a format that came later, before its lines are held to this one:
/// they might mean something else.
fn known_format(text: &str) -> Result<(), String> {
    if Format::of(text) != Some(Format::Own) {
        return Ok(());
    }
    let begins = text.lines().enumerate().filter(|(_, line)| line.contains(r#""begin""#));
    for (number, line) in begins {
        // Whether a line is an event at all is found out when the history is read.
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if event["event"] == "begin" && event["format"] != FORMAT {
            let format = &event["format"];
            return Err(format!("line {}: its format is {format}; only {FORMAT} is known here", number + 1));
        }
    }
    Ok(())
}

fn check(history: &History, format: Format, model: ModelKind, budget: Budget) -> Result<FileVerdict, String> {
    let started = Instant::now();
    let holds = if format == Format::Own { history.holds() } else { Vec::new() };
    let apart = super::without_one_fence(history);
    let mut verdict = FileVerdict {
        model,
        format,
        keys: 0,
        ops: 0,
        others: Vec::new(),
        violated: Vec::new(),
        undecided: Vec::new(),
    };
    let mut certain = 0;
    for (key, ops) in history.by_key() {
        let ops: Vec<&Op> = ops.into_iter().filter(|op| model.knows(&op.call)).collect();
        let other_kind = |op: &&Op| matches!(op.call, Call::Acquire { mode } if !model.has_mode(mode));
        if ops.is_empty() || (format == Format::Own && ops.iter().any(other_kind)) {
            verdict.others.push(key.to_string());
            continue;
        }
        let holds: Vec<&Hold> = holds.iter().filter(|hold| hold.key == key).collect();
        let fenced = !super::lock_of(&key).is_some_and(|lock| apart.contains(lock));
        let subject = Subject { ops: &ops, holds: (format == Format::Own).then_some(&holds), fenced };
        let budget = Budget { time: budget.time.saturating_sub(started.elapsed()), ..budget };
        let (steps, searched) = subject.judge(model, budget)?;
        verdict.keys += 1;
        verdict.ops += steps;
        certain += ops.iter().filter(|op| !op.had_no_effect() && !op.is_unknown()).count();
        match searched.outcome {
            Outcome::Linearizable => {}
            Outcome::Violated(part) => verdict.violated.push((key.to_string(), part)),
            Outcome::Undecided(why) => verdict.undecided.push((key.to_string(), why)),
        }
    }
    if verdict.keys == 0 {
        return Err(format!("the history has no operation that the model {model} knows"));
    }
    // Any order explains what nobody was told of.
    if verdict.ops == 0 || certain == 0 {
        let why = format!(
            "the history shows nothing: all that the model {model} knows in it failed or was never answered"
        );
        verdict.undecided.push((String::new(), why));
    }
    Ok(verdict)
}

impl fmt::Display for FileVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((key, part)) = self.violated.first() {
            if !key.is_empty() {
                writeln!(f, "on key {key}:")?;
            }
            part.fmt(f)?;
            match self.violated.len() {
                1 => Ok(()),
                count => {
                    write!(f, "\n{} of {} keys are not linearizable; this is the first", count, self.keys)
                }
            }
        } else if let Some((key, why)) = self.undecided.first() {
            let on = if key.is_empty() { String::new() } else { format!(" on key {key}") };
            write!(f, "undecided{on}: {why}")
        } else {
            f.write_str("linearizable")
        }
    }
}
