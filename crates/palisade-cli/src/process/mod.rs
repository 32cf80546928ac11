//! Commands that run under a lock, and the helper process that sees to their end.
//!
//! ```text
//! palisade ──── guardian   a group of its own; kills the command's when palisade dies or hangs
//!    └───────── COMMAND    a group of its own
//! ```
//! Both inherit the session's lifeline, so that on an engine that notices death through the kernel
//! the claim cannot pass on before both have ended.

mod child;
mod guardian;
mod interrupt;
mod marks;
mod signals;
mod supervise;
mod terminal;

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use palisade_testkit::HelperProgram;

pub(crate) use self::interrupt::die_by_key;
pub(crate) use self::signals::Signals;
pub(crate) use self::supervise::{Ended, Job, supervise};

/// The hidden argument that makes this program a worker or a server of `verify` and `bench`.
pub(crate) const TRIAL_HELPER: &str = "__trial-helper";

/// The program itself; on Linux even if its file was replaced meanwhile.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// Acts as the helper that this process was started as, if it was; returns its exit code.
pub(crate) fn helper() -> Option<u8> {
    let first = std::env::args_os().nth(1)?;
    if first == OsStr::new(interrupt::ARGUMENT) {
        return Some(interrupt::die());
    }
    if first == OsStr::new(TRIAL_HELPER) {
        let arguments = std::env::args_os().skip(2).map(|argument| argument.to_string_lossy().into_owned());
        return Some(u8::from(HelperProgram::act(arguments) != ExitCode::SUCCESS));
    }
    if first == OsStr::new(palisade_bench::WORKER) {
        return Some(u8::from(palisade_bench::worker_main() != ExitCode::SUCCESS));
    }
    (first == OsStr::new(guardian::ARGUMENT)).then(guardian::guard)
}
