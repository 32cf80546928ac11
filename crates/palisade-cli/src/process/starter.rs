//! The process that becomes the command.
//!
//! Between fork and exec Rust offers no safe way to run code of one's own, so this program is
//! started once more, makes its arrangements, and then replaces itself with the command.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, getpid, getppid};

use super::guardian::group_line;
use crate::exit;

/// The hidden argument: `STARTER PARENT-PID PIPE-FD COMMAND…`.
pub(super) const ARGUMENT: &str = "__palisade-starter";

/// Becomes the command; returns only if that fails, with the exit code a shell would give.
pub(super) fn start(mut args: impl Iterator<Item = OsString>) -> u8 {
    let mut number = || args.next()?.to_str()?.parse::<i32>().ok();
    let (Some(parent), Some(pipe)) = (number(), number()) else { return exit::USAGE };
    let Some(command) = args.next() else { return exit::USAGE };
    die_with_parent();
    if getppid() != Pid::from_raw(parent) {
        // It died before the kernel was asked to tell us.
        return exit::LOST;
    }
    // Before the command can do anything, the guardian knows whom to kill. Where there is no
    // `/proc`, palisade's own message follows.
    let _ = register(parent, pipe);
    let problem = Command::new(&command).args(args).exec();
    exit::complain(&format!("{}: {}", command.to_string_lossy(), reason(&problem)));
    if problem.kind() == io::ErrorKind::NotFound { exit::NO_COMMAND } else { exit::CANNOT_RUN }
}

/// The kernel kills the command itself when palisade dies, should even the guardian be gone.
/// Outlasts exec; its children are the guardian's business.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

/// Opens the guardian's pipe through our parent instead of inheriting it: a copy that leaked
/// into the command would keep the guardian from noticing that palisade died.
fn register(parent: i32, pipe: i32) -> io::Result<()> {
    let mut pipe = OpenOptions::new().write(true).open(format!("/proc/{parent}/fd/{pipe}"))?;
    pipe.write_all(group_line(getpid()).as_bytes())
}

fn reason(problem: &io::Error) -> String {
    match problem.kind() {
        io::ErrorKind::NotFound => "command not found".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => problem.to_string(),
    }
}
