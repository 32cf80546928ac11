//! The process that outlives palisade to kill the command's group, should palisade die or hang.
//!
//! It reads lines from its standard input: `claim ID`, `group PID`, `until NANOS` (on the boot-time
//! clock), `bye`. The end of the input without `bye` means that palisade is dead. If that happens
//! while the command starts, the group is not known yet; then the claim in the environment of its
//! processes tells who they are.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use palisade::{BootInstant, Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix;

use super::this_program;
use crate::held::CLAIM_EXPORT;

/// The hidden argument.
pub(super) const ARGUMENT: &str = "__palisade-guardian";

/// How it is called in process lists; not `palisade`, so that who kills those by name leaves it.
const NAME: &str = "lock-guardian";

/// The exit code after it had to kill.
const KILLED: u8 = 3;

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
        let mut process = Command::new(this_program()?)
            .arg0(NAME)
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // A guardian that was stopped must not stop palisade too.
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { process, pipe, told: BootInstant::FAR_FUTURE })
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

    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Ends it, after a command that it cannot have killed. It need not even have come up.
    pub(super) fn end(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
                    self.end();
                    return false;
                }
            }
        }
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
    /// What the environment of the command says.
    export: Option<String>,
    group: Option<Pid>,
    until: BootInstant,
    bye: bool,
    /// A line that has not ended yet.
    rest: Vec<u8>,
}

impl Default for Orders {
    fn default() -> Self {
        Self { export: None, group: None, until: BootInstant::FAR_FUTURE, bye: false, rest: Vec::new() }
    }
}

impl Orders {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.obey(std::str::from_utf8(&line).unwrap_or_default().trim_end());
        }
    }

    fn obey(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("claim", id)) => self.export = Some(format!("{CLAIM_EXPORT}={id}")),
            Some(("group", pid)) => self.group = pid.parse().ok().and_then(Pid::from_raw),
            Some(("until", nanos)) => {
                self.until = nanos.parse().map_or(self.until, BootInstant::from_nanos);
            }
            _ => self.bye |= line == "bye",
        }
    }

    /// Kills the group and stays, lifeline in hand, until nobody of it is left: a process of the
    /// group may have closed its own copy. Not past the deadline, when the copy is of no use.
    fn kill(&self) -> u8 {
        let Some(group) = self.group.or_else(|| self.search()) else { return 0 };
        let _ = kill_process_group(group, Signal::KILL);
        let give_up = self.until.min(SystemClock.now() + Duration::from_mins(1));
        while is_running(group) && SystemClock.now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
        }
        KILLED
    }

    /// The group of a command that palisade started but did not live to tell of. A process that
    /// is about to become the command shows its environment only then, so look for a while.
    fn search(&self) -> Option<Pid> {
        let export = self.export.as_deref()?.as_bytes();
        let give_up = SystemClock.now() + Duration::from_millis(500);
        while SystemClock.now() < give_up {
            if let Some(group) = group_with(export) {
                return Some(group);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

/// The group whose leader has `export` in its environment.
fn group_with(export: &[u8]) -> Option<Pid> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let is_ours = environment.split(|byte| *byte == 0).any(|variable| variable == export);
        (is_ours && rustix::process::getpgid(Some(pid)) == Ok(pid)).then_some(pid)
    })
}

/// Whether any process of the group can still run. The dead count as members until they are
/// reaped, which in a container without an init may be never.
pub(super) fn is_running(group: Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    processes
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .any(|stat| is_live_member(&stat, &group))
}

/// `pid (name) state ppid pgrp …`; the name may hold anything.
fn is_live_member(stat: &str, group: &str) -> bool {
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let mut fields = fields.split(' ');
    let (state, pgrp) = (fields.next(), fields.nth(1));
    pgrp == Some(group) && !matches!(state, Some("Z" | "X"))
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
        assert_eq!(orders.group, Pid::from_raw(42));
        assert_eq!(orders.until, BootInstant::from_nanos(700));
        assert_eq!(orders.export.as_deref(), Some("PALISADE_CLAIM=c"));
        assert!(!orders.bye);
        orders.take(b"bye\n");
        assert!(orders.bye);
    }

    #[test]
    fn the_dead_are_no_members() {
        assert!(is_live_member("7 (a) b) S 1 42 42 0", "42"));
        assert!(!is_live_member("7 (a) Z 1 42 42 0", "42"));
        assert!(!is_live_member("7 (a) S 1 41 42 0", "42"));
        assert!(!is_live_member("", "42"));
    }
}
