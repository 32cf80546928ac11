//! Exit codes, and which error leads to which.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

use palisade::ErrorKind;

use crate::output::printable;

/// How a verb ends: an exit code, or a failure that has one.
pub(crate) type Outcome<T = u8> = Result<T, Failure>;

/// Done.
pub(crate) const OK: u8 = 0;
/// The answer is no: nothing there, a write refused.
pub(crate) const NO: u8 = 1;
/// Nobody can say whether yes or no.
pub(crate) const UNDECIDED: u8 = 2;
/// Asked for something that cannot be (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The engine cannot serve (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// A fault in Palisade itself (`EX_SOFTWARE`).
pub(crate) const SOFTWARE: u8 = 70;
/// The lock was not obtained in time (`EX_TEMPFAIL`).
pub(crate) const NOT_OBTAINED: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The engine refuses this user, or lets it do too little (`EX_NOPERM`).
pub(crate) const DENIED: u8 = 77;
/// The command exists but cannot be run, as a shell says it.
pub(crate) const CANNOT_RUN: u8 = 126;
/// There is no such command, as a shell says it.
pub(crate) const NO_COMMAND: u8 = 127;

/// The part of `--help` about exit codes.
pub(crate) const HELP: &str = "\
Exit codes:
  0        done
  1        no: nothing there, or a write was refused
  2        undecided (verify)
  64       usage: bad names, options or URLs, or what the engine does not offer
  69       the engine is unavailable, or its data cannot be read
  70       a fault in palisade itself
  75       not obtained in time (run, elect)
  76       lost while the command ran (run, elect)
  77       the engine refuses this user or password, or it lacks rights
  126      the command cannot be run
  127      the command was not found
  128 + n  the command, or the wait for the lock, was ended by signal n
  other    the command's own";

/// The code of what signal `number` ended, as a shell gives it.
pub(crate) fn by_signal(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// Whether this is the code of a command that Ctrl-C or Ctrl-\\ ended.
pub(crate) fn is_by_key(code: u8) -> bool {
    use rustix::process::Signal;
    [Signal::INT, Signal::QUIT].iter().any(|signal| code == by_signal(signal.as_raw()))
}

/// Why a verb failed, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// Empty if there is nothing to say.
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// Says first what was being done, from the outside in.
    pub(crate) fn while_doing(self, doing: &[String]) -> Self {
        let words = doing.iter().chain([&self.message]).cloned().collect::<Vec<_>>();
        Self { message: words.join(": "), ..self }
    }

    /// Whether the engine could not be reached: then there is nothing to say goodbye to.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.code == UNAVAILABLE
    }

    /// Says why on standard error; returns the code.
    pub(crate) fn report(self) -> u8 {
        if !self.message.is_empty() {
            complain(&self.message);
        }
        self.code
    }
}

/// Prints a line for people. Nobody listening is fine.
pub(crate) fn complain(message: &str) {
    use io::Write as _;
    let _ = writeln!(io::stderr(), "palisade: {message}");
}

impl From<palisade::Error> for Failure {
    fn from(error: palisade::Error) -> Self {
        Self::new(code_of(error.kind()), explained(&error))
    }
}

/// An error with its causes. Servers and other users have their words in it.
pub(crate) fn explained(error: &palisade::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many messages say their cause already.
        if !message.contains(&cause_text) {
            let _ = write!(message, ": {cause_text}");
        }
        source = cause.source();
    }
    printable(&message)
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        // A conflict is a contradiction between what two callers ask for: one of them is wrong.
        ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Conflict | ErrorKind::WouldDeadlock => USAGE,
        // A token of another source is refused as a stale one is.
        ErrorKind::SourceMismatch => NO,
        ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Full
        | ErrorKind::Corrupt
        | ErrorKind::Closed => UNAVAILABLE,
        ErrorKind::Denied => DENIED,
        // Only a claim that waits gets here: someone evicted it from the queue.
        ErrorKind::Lost => NOT_OBTAINED,
        _ => SOFTWARE,
    }
}

impl From<io::Error> for Failure {
    /// From printing: a reader who left early wanted no more, and that is no failure.
    fn from(problem: io::Error) -> Self {
        match problem.kind() {
            io::ErrorKind::BrokenPipe => Self::new(OK, ""),
            _ => Self::new(SOFTWARE, format!("cannot print: {problem}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_that_help_promises() {
        let code = |kind| Failure::from(palisade::Error::new(kind, "x")).code;
        assert_eq!(code(ErrorKind::Invalid), 64);
        assert_eq!(code(ErrorKind::Corrupt), 69);
        assert_eq!(code(ErrorKind::Denied), 77);
        assert_eq!(code(ErrorKind::Lost), 75);
        assert_eq!(code(ErrorKind::Internal), 70);
        assert_eq!(by_signal(15), 143);
    }

    #[test]
    fn what_others_wrote_into_an_error_does_not_drive_a_terminal() {
        let error = palisade::Error::new(ErrorKind::Lost, "evicted: \x1b[2J\nall is well");
        let failure = Failure::from(error.because(io::Error::other("\x1b]0;title\x07")));
        assert!(!failure.message.chars().any(char::is_control), "{:?}", failure.message);
        assert!(failure.message.contains("all is well") && failure.message.contains("title"));
    }

    #[test]
    fn help_lists_every_code_once() {
        let all = [
            OK,
            NO,
            UNDECIDED,
            USAGE,
            UNAVAILABLE,
            SOFTWARE,
            NOT_OBTAINED,
            LOST,
            DENIED,
            CANNOT_RUN,
            NO_COMMAND,
        ];
        for code in all {
            let lines = HELP.lines().filter(|line| line.split_whitespace().next() == Some(&code.to_string()));
            assert_eq!(lines.count(), 1, "{code}");
        }
    }
}
