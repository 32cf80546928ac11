//! The command, as a process group.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use palisade::{Clock, SystemClock};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};

use super::guardian::Guardian;
use super::marks::Marks;
use super::terminal::Terminal;
use crate::exit;
use crate::held::CLAIM_EXPORT;

/// A started command, the leader of a group of its own.
#[derive(Debug)]
pub(super) struct Child {
    group: Pid,
    marks: Marks,
    terminal: Terminal,
}

impl Child {
    /// Starts the command with `exports` in its environment, and tells the guardian.
    pub(super) fn spawn(
        command: &[OsString],
        exports: &[(&'static str, String)],
        guardian: &mut Guardian,
    ) -> io::Result<Self> {
        let mut terminal = Terminal::find();
        let (program, args) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let process = Command::new(program)
            .args(args)
            .envs(exports.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .spawn()?;
        let group = Pid::from_child(&process);
        guardian.tell_group(group);
        terminal.write_from_background();
        let child = Self { group, marks: marks(group, exports), terminal };
        child.give_terminal();
        Ok(child)
    }

    /// Hands the terminal over. The command may have been stopped for reading it too early.
    pub(super) fn give_terminal(&self) {
        if self.terminal.give_to(self.group) {
            self.signal(Signal::CONT);
        }
    }

    /// Whether keys pressed at the terminal go to the command, and not to us.
    pub(super) fn has_terminal(&self) -> bool {
        self.terminal.belongs_to(self.group)
    }

    /// Whether there is a terminal at which keys may be pressed.
    pub(super) fn is_at_terminal(&self) -> bool {
        self.terminal.is_there()
    }

    /// Signals the whole group. One that is gone needs no signal.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    /// Kills what is left of it and sees that end, for a second at most.
    pub(super) async fn kill_rest(&self) {
        let give_up = SystemClock.now() + Duration::from_secs(1);
        while self.marks.kill() && SystemClock.now() < give_up {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How the command ended, once it has.
    pub(super) fn ended(&self) -> Option<u8> {
        loop {
            let status = match waitpid(Some(self.group), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((_, status))) => status,
                Ok(None) => return None,
                Err(rustix::io::Errno::INTR) => continue,
                // Nobody else reaps our children; if someone did, the command is gone all the same.
                Err(_) => return Some(exit::SOFTWARE),
            };
            if let Some(signal) = status.terminating_signal() {
                return Some(exit::by_signal(signal));
            }
            if let Some(code) = status.exit_status() {
                return Some(u8::try_from(code).unwrap_or(u8::MAX));
            }
            if self.has_terminal() {
                // A lock does not wait, and nobody could type anything while it has the terminal.
                exit::complain("a command that holds a lock cannot be suspended; it goes on");
                self.signal(Signal::CONT);
            }
        }
    }
}

/// Without the lifeline, which processes of an earlier run may have too that ended as it should.
fn marks(group: Pid, exports: &[(&'static str, String)]) -> Marks {
    let mut marks = Marks::default();
    marks.set_group(Some(group));
    if let Some((_, claim)) = exports.iter().find(|(name, _)| *name == CLAIM_EXPORT) {
        marks.set_claim(claim);
    }
    marks
}

impl Drop for Child {
    fn drop(&mut self) {
        self.terminal.take_back(self.group);
    }
}
