//! What `verify` and `bench` share: both try an engine with helper processes of their own.

use std::future::Future;
use std::io::{self, IsTerminal, Write};

use palisade_testkit::{HelperProgram, Misuse};

use crate::args::Global;
use crate::exit::{self, Failure, Outcome};
use crate::output::printable;
use crate::process::{Signals, TRIAL_HELPER, this_program};

/// The engine to try: one of its own, unless another is named.
pub(crate) fn engine(global: &Global) -> String {
    global.engine.clone().unwrap_or_else(|| "local:file".to_owned())
}

/// This program, as the helper processes of a trial.
pub(crate) fn helper() -> Outcome<HelperProgram> {
    let path = this_program().map_err(|problem| failure(problem.into()))?;
    Ok(HelperProgram { path, arguments: vec![TRIAL_HELPER.to_owned()] })
}

/// Why a trial could not be made, with its exit code.
pub(crate) fn failure(problem: anyhow::Error) -> Failure {
    let message = printable(&format!("{problem:#}"));
    if problem.is::<Misuse>() {
        return Failure::usage(message);
    }
    // What was being done when the engine failed stands before its error.
    let doing = problem.chain().take_while(|cause| !cause.is::<palisade::Error>());
    let doing: Vec<String> = doing.map(|cause| printable(&cause.to_string())).collect();
    match problem.downcast::<palisade::Error>() {
        Ok(error) => Failure::from(error).while_doing(&doing),
        Err(_) => Failure::new(exit::SOFTWARE, message),
    }
}

/// Carries `work` out, or drops it when a signal asks this program to end: what it started ends with
/// it, and its folders go.
pub(crate) async fn until_signalled<T>(work: impl Future<Output = T>) -> Outcome<T> {
    let mut signals = Signals::listen().map_err(|problem| failure(problem.into()))?;
    tokio::select! {
        done = work => Ok(done),
        signal = signals.next_ending() => {
            Err(Failure::new(exit::by_signal(signal.as_raw()), "interrupted: nothing was judged"))
        }
    }
}

/// One line that is written over, if somebody watches; nothing clears it.
pub(crate) fn tell(what: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{what}").and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_being_done_is_said_with_the_engines_error() {
        let error = palisade::Error::new(palisade::ErrorKind::Timeout, "no answer within 1s");
        let problem = anyhow::Error::new(error).context("a last read failed");
        let failure = format!("{:?}", failure(problem));
        assert!(
            failure.contains("a last read failed: ") && failure.contains("no answer within 1s"),
            "{failure}"
        );
        assert!(failure.contains(&exit::UNAVAILABLE.to_string()), "{failure}");
    }
}
