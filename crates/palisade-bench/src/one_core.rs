use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// This process and all that it started, on one processor; on those from before again when dropped.
///
/// Where one asks and another answers, waking a processor that sleeps takes longer than a whole request on many a virtual
/// machine, and whether it has to be woken is chance: the same build came to 1.2 and to 4.8 times its raw limit. On one
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
        // From here on dropping it puts back what was moved.
        let entered = Self { before };
        move_all(&one).context("cannot move the run to one processor")?;
        Ok(entered)
    }

    /// Goes back; what is measured next needs all processors.
    pub(crate) fn leave(self) -> Result<()> {
        move_all(&self.before).context("cannot move the run back to all processors")
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // Whoever wants to know leaves.
        let _ = move_all(&self.before);
    }
}

/// Moves every thread of this process and of all that descend from it. What they start later goes with them.
fn move_all(to: &CpuSet) -> Result<()> {
    let (mut moved, mut problem) = (HashSet::new(), None);
    // Again, for what was started by one that had not been moved yet.
    loop {
        let threads = threads_of_all(std::process::id())?;
        let new: Vec<u32> = threads.into_iter().filter(|thread| moved.insert(*thread)).collect();
        if new.is_empty() {
            return problem.map_or(Ok(()), |problem: rustix::io::Errno| Err(problem.into()));
        }
        for thread in new {
            let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
            match sched_setaffinity(thread, to) {
                // It has ended since.
                Err(rustix::io::Errno::SRCH) | Ok(()) => {}
                // The others are moved all the same.
                Err(other) => problem = problem.or(Some(other)),
            }
        }
    }
}

fn threads_of_all(first: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in numbers_in(Path::new("/proc"))? {
        if let Some(parent) = parent_of(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut threads, mut to_see) = (Vec::new(), vec![first]);
    while let Some(process) = to_see.pop() {
        // One that has ended meanwhile has none.
        threads.extend(numbers_in(Path::new(&format!("/proc/{process}/task"))).unwrap_or_default());
        to_see.extend(children.remove(&process).unwrap_or_default());
    }
    Ok(threads)
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn numbers_in(folder: &Path) -> Result<Vec<u32>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
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
