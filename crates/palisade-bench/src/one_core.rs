use std::collections::HashSet;
use std::fs;

use anyhow::{Context, Result};
use palisade_testkit::servers::children;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// This process and all that it started, on one processor, until it leaves.
///
/// Where one asks and another answers, waking a processor that sleeps takes longer than a whole request on many a virtual
/// machine, and whether it has to be woken is chance: the same build came to 1.2 and to 3.0 times its raw limit. On one
/// processor the same figure comes twice, and what is compared is work. What many do at once is measured on all of them.
#[derive(Debug)]
pub(crate) struct OneCore {
    before: CpuSet,
}

impl OneCore {
    pub(crate) fn enter() -> Result<Self> {
        let before = sched_getaffinity(None).context("cannot ask which processors there are")?;
        let mut one = CpuSet::new();
        // The first often has the interrupts of all.
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu));
        one.set(last.context("no processor may be used")?);
        let entered = Self { before };
        if let Err(problem) = move_all(&one) {
            // What was moved goes back; why not all could be is what there is to tell.
            let _ = entered.leave();
            return Err(problem.context("cannot move the run to one processor"));
        }
        Ok(entered)
    }

    /// Goes back; what is measured next needs all processors.
    pub(crate) fn leave(self) -> Result<()> {
        move_all(&self.before).context("cannot move the run back to all processors")
    }
}

/// Moves every thread of this process and of all that descend from it. What they start later goes with them.
fn move_all(to: &CpuSet) -> Result<()> {
    let (mut moved, mut problem) = (HashSet::new(), None);
    // Again, for what was started by one that had not been moved yet.
    loop {
        let threads = threads_of_all(std::process::id());
        let new: Vec<i32> = threads.into_iter().filter(|thread| moved.insert(*thread)).collect();
        if new.is_empty() {
            return problem.map_or(Ok(()), |problem: rustix::io::Errno| Err(problem.into()));
        }
        for thread in new {
            match sched_setaffinity(Pid::from_raw(thread), to) {
                // It has ended since.
                Err(rustix::io::Errno::SRCH) | Ok(()) => {}
                // The others are moved all the same.
                Err(other) => problem = problem.or(Some(other)),
            }
        }
    }
}

fn threads_of_all(first: u32) -> Vec<i32> {
    let (mut threads, mut to_see) = (Vec::new(), vec![first]);
    while let Some(process) = to_see.pop() {
        // One that has ended meanwhile has none.
        let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        threads.extend(entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()));
        to_see.extend(children(process).into_iter().map(i32::cast_unsigned));
    }
    threads
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// How many processors a process may use.
    fn cores_of(child: &Child) -> u32 {
        let pid = Pid::from_child(child);
        sched_getaffinity(Some(pid)).unwrap().count()
    }

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn all_that_was_started_goes_along_and_comes_back() {
        let sleeper = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn();
        let sleeper = Sleeper(sleeper.expect("sleep is everywhere"));
        let cores = || (cores_of(&sleeper.0), sched_getaffinity(None).unwrap().count());
        let before = cores();
        let one = OneCore::enter().unwrap();
        assert_eq!(cores(), (1, 1));
        one.leave().unwrap();
        assert_eq!(cores(), before);
    }
}
