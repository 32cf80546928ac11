//! Commands that run under a lock, and the two helper processes that see to their end.
//!
//! ```text
//! palisade ──── guardian      own group; kills the command's group when palisade dies or hangs
//!    └───────── starter ⇒ COMMAND    own group; the starter becomes the command
//! ```
//! Guardian and command inherit the session's lifeline, so that on an engine that notices death
//! through the kernel the claim cannot pass on before both have ended.

mod child;
mod guardian;
mod signals;
mod starter;
mod supervise;
mod terminal;

use std::ffi::OsStr;

pub(crate) use self::signals::Signals;
pub(crate) use self::supervise::{Ended, Job, supervise};

/// The program itself, even if its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Acts as one of the helper processes if this process was started as one; returns its exit code.
pub(crate) fn helper() -> Option<u8> {
    let mut args = std::env::args_os().skip(1);
    let first = args.next()?;
    if first == OsStr::new(guardian::ARGUMENT) {
        return Some(guardian::guard());
    }
    if first == OsStr::new(starter::ARGUMENT) {
        return Some(starter::start(args));
    }
    None
}
