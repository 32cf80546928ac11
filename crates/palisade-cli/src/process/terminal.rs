//! Who has the terminal: a command in a group of its own must be given it to read from it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal, while we are its foreground job.
#[derive(Debug)]
pub(super) struct Terminal {
    terminal: Option<OwnedFd>,
    /// The signals that were blocked before [`Self::write_from_background`].
    blocked_before: Option<SigSet>,
}

impl Terminal {
    /// The terminal among the standard streams, if there is one and it is ours to give away.
    ///
    /// A shell without job control starts what it does not wait for in its own group, with
    /// `/dev/null` as input: such a one would take the terminal from the script that started it.
    pub(super) fn find() -> Self {
        let (input, error, output) = (io::stdin(), io::stderr(), io::stdout());
        let streams = [input.as_fd(), error.as_fd(), output.as_fd()];
        let terminal = streams
            .into_iter()
            .find(|stream| isatty(stream))
            .filter(|_| isatty(&input) || !is_device(input.as_fd()))
            .and_then(|stream| stream.try_clone_to_owned().ok());
        Self { terminal, blocked_before: None }
    }

    /// Lets us write to the terminal from the background, for which the kernel would stop us: taking
    /// it back is such a write. For us alone, so after the command has started.
    pub(super) fn write_from_background(&mut self) {
        if self.terminal.is_some() {
            let background_write = SigSet::from(Signal::SIGTTOU);
            self.blocked_before = background_write.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok();
        }
    }

    /// Makes `group` the foreground job if we are. Returns whether it is now.
    pub(super) fn give_to(&self, group: Pid) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        tcgetpgrp(terminal) == Ok(getpgrp()) && tcsetpgrp(terminal, group).is_ok()
    }

    pub(super) fn is_there(&self) -> bool {
        self.terminal.is_some()
    }

    /// Whether `group` is the foreground job.
    pub(super) fn belongs_to(&self, group: Pid) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| tcgetpgrp(terminal) == Ok(group))
    }

    /// Makes us the foreground job again if `group` still is.
    pub(super) fn take_back(&mut self, group: Pid) {
        if let Some(terminal) = &self.terminal
            && self.belongs_to(group)
        {
            let _ = tcsetpgrp(terminal, getpgrp());
        }
        if let Some(before) = self.blocked_before.take() {
            let _ = before.thread_set_mask();
        }
    }
}

fn is_device(stream: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::CharacterDevice
    })
}
