//! The process that outlives palisade to kill the command's group, should palisade die or hang.
//!
//! It reads lines from its standard input: `lifeline FD`, `claim ID`, `group PID`, `until NANOS` (on
//! the boot-time clock), `bye`. The end of the input without `bye` means that palisade is dead. If
//! that happens while the command starts, the group is not known yet; then the lifeline and the claim
//! in the environment of its processes tell who they are.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal as Blocked;
use palisade::{BootInstant, Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::signal::unix;

use super::marks::Marks;
use super::signals::while_blocked;
use super::this_program;
use crate::held::CLAIM_EXPORT;

/// The hidden argument. Like the name without `palisade`: who kills those by name leaves this.
pub(super) const ARGUMENT: &str = "__lock-guardian";

/// How it is called in process lists.
const NAME: &str = "lock-guardian";

/// The exit code after it had to kill.
const KILLED: u8 = 3;

/// What a service manager or a shell sends to all processes at once. It is for the command to act
/// on, and its guardian stays until that has ended.
const UNMOVED_BY: [Blocked; 7] = [
    Blocked::SIGHUP,
    Blocked::SIGINT,
    Blocked::SIGQUIT,
    Blocked::SIGTERM,
    Blocked::SIGUSR1,
    Blocked::SIGUSR2,
    Blocked::SIGTSTP,
];

/// Timers stand still during suspend, the boot-time clock does not.
const LOOK: Duration = Duration::from_secs(1);

/// palisade's end.
#[derive(Debug)]
pub(super) struct Guardian {
    process: Child,
    pipe: ChildStdin,
    told: BootInstant,
}

impl Guardian {
    /// Starts it. It inherits every descriptor that is not closed on exec, such as the lifeline.
    pub(super) fn spawn() -> io::Result<Self> {
        let mut command = Command::new(this_program()?);
        command
            .arg0(NAME)
            .arg(ARGUMENT)
            // Of a lock around this one, whose guardian leaves our command to us.
            .env_remove(CLAIM_EXPORT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0);
        // Inherited, so that there is no first moment without it.
        let mut process = while_blocked(&UNMOVED_BY, || command.spawn())?;
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // A guardian that was stopped must not stop palisade too.
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { process, pipe, told: BootInstant::FAR_FUTURE })
    }

    /// Which of the descriptors that it inherited the command's processes have too.
    pub(super) fn tell_lifeline(&mut self, inherited: Option<&OwnedFd>) {
        if let Some(lifeline) = inherited {
            self.tell(&format!("lifeline {}\n", lifeline.as_raw_fd()));
        }
    }

    /// What the command will find in its environment, of which the claim is unique.
    pub(super) fn tell_exports(&mut self, exports: &[(&'static str, String)]) {
        if let Some((_, claim)) = exports.iter().find(|(name, _)| *name == CLAIM_EXPORT) {
            self.tell(&format!("claim {claim}\n"));
        }
    }

    /// The group to kill.
    pub(super) fn tell_group(&mut self, group: Pid) {
        self.tell(&format!("group {}\n", group.as_raw_nonzero()));
    }

    /// When to kill unless told a later moment.
    pub(super) fn tell_until(&mut self, until: BootInstant) {
        if self.told != until {
            self.told = until;
            self.tell(&format!("until {}\n", until.as_nanos()));
        }
    }

    /// A line that cannot be written leaves the guardian with an earlier moment, which is safe.
    fn tell(&mut self, line: &str) {
        let _ = self.pipe.write_all(line.as_bytes());
    }

    /// Wakes it if someone stopped it.
    pub(super) fn wake(&self) {
        let pid = Pid::from_child(&self.process);
        // Does not reap it.
        if let Ok(Some(_)) = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG) {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Ends it, after a command that it cannot have killed. It need not even have come up.
    pub(super) fn end(mut self) -> Dying {
        let _ = self.process.kill();
        Dying(self)
    }

    /// Sends it home; says whether it had killed the command. `deaths` tells when children end.
    pub(super) async fn dismiss(mut self, deaths: &mut unix::Signal) -> bool {
        self.tell("bye\n");
        let patience = tokio::time::sleep(LOOK);
        let mut patience = std::pin::pin!(patience);
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return status.code() == Some(i32::from(KILLED)),
                Ok(None) => {}
                Err(_) => return false,
            }
            tokio::select! {
                _ = deaths.recv() => {}
                () = &mut patience => {
                    // Someone stopped it.
                    drop(self.end());
                    return false;
                }
            }
        }
    }
}

/// A guardian that was killed. It takes its time to be gone, in which the lock is given back: only then is it waited for.
#[must_use]
pub(super) struct Dying(Guardian);

impl Drop for Dying {
    fn drop(&mut self) {
        let _ = self.0.process.wait();
    }
}

/// The guardian's life.
pub(super) fn guard() -> u8 {
    let _ = rustix::thread::set_name(c"lock-guardian");
    let mut orders = Orders::default();
    let mut stdin = io::stdin().lock();
    let mut buffer = [0; 4096];
    loop {
        let left = orders.until.saturating_since(SystemClock.now());
        if left.is_zero() {
            return orders.kill();
        }
        match readable(left.min(LOOK)) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(_) => return orders.kill(),
        }
        match stdin.read(&mut buffer) {
            Ok(0) => return orders.kill(),
            Ok(read) => orders.take(&buffer[..read]),
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return orders.kill(),
        }
        if orders.bye {
            return 0;
        }
    }
}

fn readable(within: Duration) -> rustix::io::Result<bool> {
    let timeout = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: within.subsec_nanos().into() };
    let stdin = io::stdin();
    match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// What it was told so far.
#[derive(Debug)]
struct Orders {
    marks: Marks,
    until: BootInstant,
    bye: bool,
    /// A line that has not ended yet.
    rest: Vec<u8>,
}

impl Default for Orders {
    fn default() -> Self {
        Self { marks: Marks::default(), until: BootInstant::FAR_FUTURE, bye: false, rest: Vec::new() }
    }
}

impl Orders {
    const LONGEST_PAUSE: Duration = Duration::from_millis(50);

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.obey(std::str::from_utf8(&line).unwrap_or_default().trim_end());
        }
    }

    fn obey(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("lifeline", descriptor)) => self.marks.set_lifeline(descriptor.parse().ok()),
            Some(("claim", id)) => self.marks.set_claim(id),
            Some(("group", pid)) => self.marks.set_group(pid.parse().ok().and_then(Pid::from_raw)),
            Some(("until", nanos)) => {
                self.until = nanos.parse().map_or(self.until, BootInstant::from_nanos);
            }
            _ => self.bye |= line == "bye",
        }
    }

    /// Kills the command's processes and stays, lifeline in hand, until none is left: one may have
    /// closed its own copy. Not long past the deadline, when the copy is of no use.
    fn kill(&self) -> u8 {
        let now = SystemClock.now();
        let give_up = self.until.max(now + LOOK).min(now + Duration::from_mins(1));
        let mut killed = self.marks.has_group();
        let (mut in_vain, mut pause) = (0, Duration::from_millis(1));
        loop {
            if self.marks.kill() {
                (killed, in_vain) = (true, 0);
            } else {
                in_vain += 1;
            }
            // Once is not enough: a process may have started another behind our back.
            let is_done = in_vain > 1 && (killed || !self.marks.may_appear());
            if is_done || SystemClock.now() >= give_up {
                return if killed { KILLED } else { 0 };
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Self::LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_in_any_pieces() {
        let mut orders = Orders::default();
        for piece in [&b"gro"[..], b"up 42\nuntil 7", b"00\n", b"until x\nnonsense\nclaim c\n"] {
            orders.take(piece);
        }
        assert!(orders.marks.has_group());
        assert_eq!(orders.until, BootInstant::from_nanos(700));
        assert!(!orders.bye);
        orders.take(b"bye\n");
        assert!(orders.bye);
    }
}
