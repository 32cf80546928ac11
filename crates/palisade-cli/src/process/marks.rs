//! Who belongs to a command: its group, and those of its descendants that left the group.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};

use crate::held::CLAIM_EXPORT;

/// What tells a command's processes from all others. Bearing one is enough.
#[derive(Debug, Default)]
pub(super) struct Marks {
    group: Option<Pid>,
    /// The claim, as the environment tells it; inherited by all that are not given another one.
    export: Option<String>,
    /// Our own copy of the lifeline; inherited by all that do not close it.
    lifeline: Option<RawFd>,
}

impl Marks {
    pub(super) fn set_group(&mut self, group: Option<Pid>) {
        self.group = group;
    }

    pub(super) fn set_claim(&mut self, id: &str) {
        self.export = Some(format!("{CLAIM_EXPORT}={id}"));
    }

    pub(super) fn set_lifeline(&mut self, lifeline: Option<RawFd>) {
        self.lifeline = lifeline;
    }

    pub(super) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Whether a process that bears a mark may not show it yet: its environment appears with the
    /// command, while a descriptor is there from the first moment.
    pub(super) fn may_appear(&self) -> bool {
        self.group.is_none() && self.lifeline.is_none() && self.export.is_some()
    }

    /// Kills whoever bears a mark, except this process and its parent, which have the lifeline too.
    /// Returns whether anyone was still able to run.
    pub(super) fn kill(&self) -> bool {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let Ok(processes) = fs::read_dir("/proc") else {
            return self.group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok());
        };
        let spared = [Some(getpid()), getppid()];
        let lifeline = self.lifeline.and_then(Description::of_our);
        let mut found = false;
        for entry in processes.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?))
            else {
                continue;
            };
            if !spared.contains(&Some(pid)) && self.are_on(&entry.path(), lifeline.as_ref()) {
                found = true;
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        found
    }

    fn are_on(&self, folder: &Path, lifeline: Option<&Description>) -> bool {
        let in_group = self.group.is_some_and(|group| {
            fs::read_to_string(folder.join("stat")).is_ok_and(|stat| is_live_member(&stat, group))
        });
        in_group
            || self.export.as_deref().is_some_and(|export| has_variable(folder, export))
            || lifeline.is_some_and(|lifeline| lifeline.is_open_in(folder))
    }
}

/// Whether the process is of the group and can still run. The dead count as members until they are
/// reaped, which in a container without an init may be never.
///
/// `pid (name) state ppid pgrp …`; the name may hold anything.
fn is_live_member(stat: &str, group: Pid) -> bool {
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let mut fields = fields.split(' ');
    let (state, pgrp) = (fields.next(), fields.nth(1));
    pgrp == Some(&group.as_raw_nonzero().to_string()) && !matches!(state, Some("Z" | "X"))
}

fn has_variable(folder: &Path, export: &str) -> bool {
    fs::read(folder.join("environ"))
        .is_ok_and(|all| all.split(|byte| *byte == 0).any(|variable| variable == export.as_bytes()))
}

/// An open file as the kernel describes it to every process that has a copy: file, position, flags
/// and locks.
///
/// That the file is the same is not enough: who asks whether the session is alive opens it too, and
/// must not be killed for that. Nothing here asks the file system, which may hang.
#[derive(Debug, PartialEq, Eq)]
struct Description {
    link: PathBuf,
    info: String,
}

impl Description {
    fn of_our(descriptor: RawFd) -> Option<Self> {
        let (folder, descriptor) = (Path::new("/proc/self"), descriptor.to_string());
        let link = fs::read_link(folder.join("fd").join(&descriptor)).ok()?;
        Some(Self { link, info: info(folder, descriptor.as_ref())? })
    }

    fn is_open_in(&self, folder: &Path) -> bool {
        let Ok(descriptors) = fs::read_dir(folder.join("fd")) else { return false };
        descriptors.flatten().any(|entry| {
            fs::read_link(entry.path()).is_ok_and(|link| link == self.link)
                && info(folder, &entry.file_name()).as_ref() == Some(&self.info)
        })
    }
}

fn info(folder: &Path, descriptor: &OsStr) -> Option<String> {
    let info = fs::read_to_string(folder.join("fdinfo").join(descriptor)).ok()?;
    Some(info.lines().map(|line| without_close_on_exec(line) + "\n").collect())
}

/// The one flag that each copy has for itself.
fn without_close_on_exec(line: &str) -> String {
    let flags = line.strip_prefix("flags:").and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.map_or_else(
        || line.to_owned(),
        |flags| format!("flags: {:o}", flags & !rustix::fs::OFlags::CLOEXEC.bits()),
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_dead_are_no_members() {
        let group = Pid::from_raw(42).unwrap();
        assert!(is_live_member("7 (a) b) S 1 42 42 0", group));
        assert!(!is_live_member("7 (a) Z 1 42 42 0", group));
        assert!(!is_live_member("7 (a) S 1 41 42 0", group));
        assert!(!is_live_member("", group));
    }

    #[test]
    fn a_copy_is_told_from_another_who_opened_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lifeline");
        let file = fs::File::create_new(&path).unwrap();
        file.lock().unwrap();
        let ours = Description::of_our(file.as_raw_fd()).unwrap();
        // One is closed on exec, the other is not.
        let copy = rustix::io::dup(&file).unwrap();
        assert_eq!(Description::of_our(copy.as_raw_fd()).unwrap(), ours);
        let others = fs::File::open(&path).unwrap();
        assert_ne!(Description::of_our(others.as_raw_fd()).unwrap(), ours);
        let writers = fs::File::options().write(true).open(&path).unwrap();
        assert_ne!(Description::of_our(writers.as_raw_fd()).unwrap(), ours, "it has no lock");
    }
}
