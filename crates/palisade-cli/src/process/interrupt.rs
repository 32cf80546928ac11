//! Ends palisade as the key that ended its command would have.
//!
//! At a terminal Ctrl-C reaches the command's group only. The script that started palisade must
//! stop too, and a shell stops only if it got the signal itself *and* its child died of it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};

use super::this_program;

/// The hidden argument; the signal's number follows.
pub(super) const ARGUMENT: &str = "__die-by-signal";

/// Passes the signal behind `code` on to our own group and dies of it. Returns if that failed.
pub(crate) fn die_by_key(code: u8) {
    let Some(signal) = Signal::from_named_raw(i32::from(code) - 128) else { return };
    let Ok(program) = this_program() else { return };
    // We catch it ourselves; what we start in our place does not.
    let _ = kill_current_process_group(signal);
    let _ = Command::new(program).arg(ARGUMENT).arg(signal.as_raw().to_string()).exec();
}

/// The life of what was started in our place.
pub(super) fn die() -> u8 {
    let signal = std::env::args().nth(2).and_then(|number| Signal::from_named_raw(number.parse().ok()?));
    let Some(signal) = signal else { return crate::exit::SOFTWARE };
    let _ = kill_process(getpid(), signal);
    crate::exit::by_signal(signal.as_raw())
}
