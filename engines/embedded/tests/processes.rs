//! Real processes on one folder: they exclude each other, they die, and somebody notices.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{LIMIT, claim_for, exclusive, granted, name, open, take, waited, within};
use palisade_core::{Claimed, Engine, Mode, Page, Renewed, Selector};

const ROLE: &str = "PALISADE_TEST_ROLE";
const FOLDER: &str = "PALISADE_TEST_FOLDER";

/// Not a test of its own: what a child process does, because only a test binary is at hand.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = std::env::var(FOLDER).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = open(Path::new(&folder)).await;
        match role.as_str() {
            "hold" => hold(&engine).await,
            "renew" => renew(&engine).await,
            "wait" => wait(&engine).await,
            "spin" => spin(&engine).await,
            "run" => run_a_command(&engine).await,
            "count" => count(&engine, Path::new(&folder)).await,
            other => panic!("no role {other}"),
        }
    });
}

async fn hold(engine: &dyn Engine) {
    take(engine, "r").await;
    println!("\nready");
    std::future::pending::<()>().await;
}

/// Holds with a short TTL and renews for as long as it runs.
async fn renew(engine: &dyn Engine) {
    let claim = Arc::new(claim_for("r", Mode::Exclusive, Duration::from_secs(1)));
    granted(engine.claim(&claim).await.unwrap());
    println!("\nready");
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let [Renewed::Gone(_)] = engine.renew(std::slice::from_ref(&claim)).await.unwrap()[..] {
            println!("\ngone");
            return;
        }
    }
}

/// Takes and gives back as fast as it can.
async fn spin(engine: &dyn Engine) {
    println!("\nready");
    loop {
        let claim = Arc::new(claim_for("r", Mode::Exclusive, Duration::from_secs(15)));
        if let Claimed::Queued(_) = engine.claim(&claim).await.unwrap() {
            waited(engine.wait(&claim).await.unwrap());
        }
        engine.withdraw(&[claim]).await.unwrap();
    }
}

async fn wait(engine: &dyn Engine) {
    let claim = exclusive("r");
    assert!(matches!(engine.claim(&claim).await.unwrap(), Claimed::Queued(_)));
    println!("\nready");
    waited(engine.wait(&claim).await.unwrap());
    println!("\ngranted");
    std::future::pending::<()>().await;
}

/// Holds the lock and starts a command that inherits the lifeline.
#[allow(clippy::zombie_processes, reason = "this process is killed, and the command with it by the test")]
async fn run_a_command(engine: &dyn Engine) {
    use std::os::fd::AsFd;
    take(engine, "r").await;
    let lifeline = engine.lifeline().unwrap().as_fd().try_clone_to_owned().unwrap();
    rustix::io::fcntl_setfd(&lifeline, rustix::io::FdFlags::empty()).unwrap();
    let child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
    println!("\nready {}", child.id());
    std::future::pending::<()>().await;
}

/// Counts up in a file that nothing but the lock protects.
async fn count(engine: &dyn Engine, folder: &Path) {
    let path = folder.join("counter");
    for _ in 0..50 {
        let claim = exclusive("counter");
        if let Claimed::Queued(_) = engine.claim(&claim).await.unwrap() {
            waited(within("a turn", engine.wait(&claim)).await.unwrap());
        }
        let number: u64 = fs::read_to_string(&path).unwrap().parse().unwrap();
        fs::write(&path, (number + 1).to_string()).unwrap();
        engine.withdraw(&[claim]).await.unwrap();
    }
    engine.close().await;
}

struct Process {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Process {
    fn start(role: &str, folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Self { child, lines }
    }

    /// Waits until the process says a line that begins like this; the rest of the line.
    fn says(&self, word: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())).unwrap();
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_killed_holders_lock_passes_on_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let mut times = Vec::new();
    for _ in 0..5 {
        let holder = Process::start("hold", folder.path());
        holder.says("ready");
        let claim = exclusive("r");
        assert!(matches!(engine.claim(&claim).await.unwrap(), Claimed::Queued(_)));
        let waiting = engine.wait(&claim);
        let killing = async {
            // Let the waiter fall asleep first.
            tokio::task::yield_now().await;
            holder.signal(rustix::process::Signal::KILL);
            Instant::now()
        };
        let (granted, killed) = within("the hand-over", futures::future::join(waiting, killing)).await;
        times.push(killed.elapsed());
        waited(granted.unwrap());
        engine.withdraw(&[claim]).await.unwrap();
    }
    times.sort_unstable();
    println!("after kill -9: {times:?}");
    assert!(times[2] < Duration::from_millis(500), "{times:?}");
}

/// Whatever the process was in the middle of, also between a release and telling of it.
#[tokio::test]
async fn a_process_that_is_killed_at_any_moment_leaves_nobody_asleep() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    for round in 0..80 {
        let busy = Process::start("spin", folder.path());
        busy.says("ready");
        let killing = tokio::task::spawn_blocking(move || {
            // Not the same moment each time.
            (0..round * 5_000).for_each(|_| std::hint::spin_loop());
            drop(busy);
        });
        while !killing.is_finished() {
            let claim = Arc::new(claim_for("r", Mode::Exclusive, Duration::from_secs(15)));
            if let Claimed::Queued(_) = engine.claim(&claim).await.unwrap() {
                let turn = tokio::time::timeout(Duration::from_secs(5), engine.wait(&claim)).await;
                waited(turn.unwrap_or_else(|_| panic!("round {round}: asleep")).unwrap());
            }
            engine.withdraw(&[claim]).await.unwrap();
            tokio::task::yield_now().await;
        }
        killing.await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_waiter_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let (held, _) = take(&engine, "r").await;
    let waiter = Process::start("wait", folder.path());
    waiter.says("ready");
    let claim = exclusive("r");
    assert!(matches!(engine.claim(&claim).await.unwrap(), Claimed::Queued(_)));
    waiter.signal(rustix::process::Signal::KILL);
    drop(waiter);
    engine.withdraw(&[held]).await.unwrap();
    waited(within("the hand-over", engine.wait(&claim)).await.unwrap());
}

#[tokio::test]
async fn a_stopped_holder_loses_its_lock_with_its_ttl_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let holder = Process::start("renew", folder.path());
    holder.says("ready");
    holder.signal(rustix::process::Signal::STOP);
    let claim = exclusive("r");
    assert!(matches!(engine.claim(&claim).await.unwrap(), Claimed::Queued(_)));
    // Before the look, so that a slow machine makes the time that passes longer, not shorter.
    let start = Instant::now();
    let left = engine.inspect(&Selector::resource(name("r")), &Page::default()).await.unwrap();
    let left = left.resources[0].holders[0].expires_in.unwrap();
    waited(within("the hand-over", engine.wait(&claim)).await.unwrap());
    let passed = start.elapsed();
    assert!(passed + Duration::from_millis(5) > left, "passed on after {passed:?} of {left:?}");
    holder.signal(rustix::process::Signal::CONT);
    holder.says("gone");
}

/// Whether every thread of the process has come to a stop.
fn is_stopped(process: &Process) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", process.child.id())).unwrap();
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let come_true = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    within(what, come_true).await;
}

#[tokio::test]
async fn a_process_that_is_stopped_while_it_waits_to_write_holds_up_nobody() {
    use rustix::fs::{FlockOperation, flock};
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let file = |name| fs::File::open(folder.path().join(name)).unwrap();
    let (lock, turn) = (file("write.lock"), file("write.turn"));
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let waits = Process::start("hold", folder.path());
    let is_taken = || {
        // Shared, and given back: the process tries again if it came just then.
        let taken = flock(&turn, FlockOperation::NonBlockingLockShared).is_err();
        flock(&turn, FlockOperation::Unlock).unwrap();
        taken
    };
    until("the process waits", is_taken).await;
    waits.signal(rustix::process::Signal::STOP);
    until("the process has stopped", || is_stopped(&waits)).await;
    flock(&lock, FlockOperation::Unlock).unwrap();
    let start = Instant::now();
    for number in 0..100 {
        take(&engine, &format!("other-{number}")).await;
    }
    assert!(start.elapsed() < Duration::from_secs(2), "100 claims took {:?}", start.elapsed());
    waits.signal(rustix::process::Signal::CONT);
    waits.says("ready");
}

#[tokio::test]
async fn a_lock_does_not_pass_on_before_the_command_run_under_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).await;
    let runner = Process::start("run", folder.path());
    let said = runner.says("ready");
    let command: i32 = said.parse().unwrap();
    drop(runner);
    let claim = exclusive("r");
    assert!(matches!(engine.claim(&claim).await.unwrap(), Claimed::Queued(_)));
    let waiting = engine.wait(&claim);
    let mut waiting = std::pin::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(300), waiting.as_mut()).await;
    assert!(early.is_err(), "the lock passed on while the command ran");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(command).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    waited(within("the hand-over", waiting).await.unwrap());
}

#[tokio::test]
async fn eight_processes_count_to_four_hundred() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("counter"), "0").unwrap();
    let start = Instant::now();
    let children: Vec<Process> = (0..8).map(|_| Process::start("count", folder.path())).collect();
    for mut process in children {
        let status = tokio::task::spawn_blocking(move || {
            let status = process.child.wait().unwrap();
            drop(process);
            status
        });
        assert!(within("a counter", status).await.unwrap().success());
    }
    println!("8 x 50 increments: {:?}", start.elapsed());
    assert_eq!(fs::read_to_string(folder.path().join("counter")).unwrap(), "400");
    assert_eq!(fs::read_dir(folder.path().join("sessions")).unwrap().count(), 0);
}
