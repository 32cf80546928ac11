use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

/// A child in a process group of its own, which is killed when this is dropped, and by the kernel
/// when we are.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
}

impl Process {
    /// Far longer than an end takes.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A command for `program` that [`Process::spawn`] takes.
    pub(super) fn command(program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    /// A command for `program`, as a user of this machine, that [`Process::spawn`] takes.
    pub(super) fn command_as(user: &str, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--reuid", user, "--regid", user, "--clear-groups", "--"]);
        command.arg(program);
        command
    }

    /// Starts `command`.
    pub(super) async fn spawn(command: Command) -> Result<Self> {
        Ok(Self { child: start(command).await? })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a process has an id")?;
        kill_process(pid, signal)?;
        if signal == Signal::STOP { until_stopped(self.child.id()) } else { Ok(()) }
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends `signal` and waits for the end; kills what does not end.
    pub(super) async fn end(mut self, signal: Signal) -> Result<()> {
        // One that ended by itself is what was asked for.
        if self.ended()?.is_some() {
            return Ok(());
        }
        self.signal(signal)?;
        let limit = Instant::now() + Self::PATIENCE;
        while self.ended()?.is_none() {
            if Instant::now() > limit {
                bail!("process {} did not end within {:?}", self.id(), Self::PATIENCE);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

/// Where a server's process is while it runs.
pub(super) type Place = Mutex<Option<Process>>;

/// Sends `signal` to what runs there and waits for its end. What is dead already stays so.
pub(super) async fn end(place: &Place, signal: Signal) -> Result<()> {
    let process = place.lock().take();
    match process {
        Some(process) => process.end(signal).await,
        None => Ok(()),
    }
}

/// Sends `signal` to what runs there; `called` is what to call it if nothing does.
pub(super) fn send(place: &Place, signal: Signal, called: &str) -> Result<()> {
    place.lock().as_ref().with_context(|| format!("{called} does not run"))?.signal(signal)
}

/// The last lines of a log.
pub(super) fn end_of(log: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing is left to be saved, and what was killed (−9) ends at once, also when stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Order = (Command, oneshot::Sender<std::io::Result<Child>>);

/// Starts `command` from a thread that lives as long as this process: the kernel tells a child of its
/// parent's death when the very thread ends that started it, and those of a runtime come and go.
async fn start(mut command: Command) -> Result<Child> {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let thread = STARTER.get_or_init(|| {
        let (orders, ordered): (_, Receiver<Order>) = channel();
        std::thread::spawn(move || {
            for (mut command, started) in ordered {
                // Who asked is gone: then the child has no owner, and must not be.
                if let Err(Ok(mut child)) = started.send(command.spawn()) {
                    let _ = child.kill().and_then(|()| child.wait());
                }
            }
        });
        orders
    });
    command.process_group(0);
    let program = command.get_program().to_owned();
    let (started, child) = oneshot::channel();
    thread.send((command, started)).ok().context("the thread that starts servers has ended")?;
    let child = child.await.context("the thread that starts servers has ended")?;
    child.with_context(|| format!("{} could not be started", program.display()))
}

/// Returns once no thread of a process runs any more. The kernel stops them when the first has taken the signal: on a busy
/// machine a server goes on answering for milliseconds.
fn until_stopped(process: u32) -> Result<()> {
    const BOUND: Duration = Duration::from_secs(5);
    let began = Instant::now();
    while !is_stopped(process) {
        ensure!(began.elapsed() < BOUND, "process {process} did not stop within {BOUND:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Whether all threads of a process stand still, or are about to: one that waits for a disk does so first.
fn is_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let state = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        // Its name, in parentheses, may hold anything.
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    };
    let states: Vec<char> = threads.filter_map(state).collect();
    // One that has ended has no threads, and answers nobody.
    states.iter().all(|state| "TtDZX".contains(*state))
        && (states.is_empty() || states.iter().any(|state| "TtZX".contains(*state)))
}
