//! Who has the terminal: a command in a group of its own must be given it to read from it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal, while we are its foreground job.
#[derive(Debug)]
pub(super) struct Terminal {
    terminal: Option<OwnedFd>,
}

impl Terminal {
    /// The terminal among the standard streams, if there is one.
    pub(super) fn find() -> Self {
        let (input, error, output) = (io::stdin(), io::stderr(), io::stdout());
        let streams = [input.as_fd(), error.as_fd(), output.as_fd()];
        let terminal = streams
            .into_iter()
            .find(|stream| isatty(stream))
            .and_then(|stream| stream.try_clone_to_owned().ok());
        if terminal.is_some() {
            // To take the terminal back we write to it from the background, for which the kernel
            // would stop us.
            let mut background_write = SigSet::empty();
            background_write.add(Signal::SIGTTOU);
            let _ = background_write.thread_block();
        }
        Self { terminal }
    }

    /// Makes `group` the foreground job if we are. Returns whether it is now.
    pub(super) fn give_to(&self, group: Pid) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        tcgetpgrp(terminal) == Ok(getpgrp()) && tcsetpgrp(terminal, group).is_ok()
    }

    /// Whether `group` is the foreground job.
    pub(super) fn belongs_to(&self, group: Pid) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| tcgetpgrp(terminal) == Ok(group))
    }

    /// Makes us the foreground job again if `group` still is.
    pub(super) fn take_back(&self, group: Pid) {
        if let Some(terminal) = &self.terminal
            && self.belongs_to(group)
        {
            let _ = tcsetpgrp(terminal, getpgrp());
        }
    }
}
