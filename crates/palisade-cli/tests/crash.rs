//! Whatever happens to palisade itself, two commands never run at once.

mod common;

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use common::{Sandbox, is_alive, until};
use rustix::process::{Pid, Signal, kill_process};

/// Runs with a child in the background, both of which say who they are. Each notes its beats, so
/// that the log shows who ran last.
const FAMILY: &str =
    "echo $$ > leader; (while :; do echo old >> log; sleep 0.01; done) & echo $! > child; wait";

/// The successor notes that it began, and whether the family was still alive.
const SUCCESSOR: &str = "for pid in $(cat leader child); do
    state=$(sed 's/.*) //; s/ .*//' /proc/$pid/stat 2>/dev/null)
    case \"$state\" in ''|Z|X) ;; *) echo overlap $pid $state >> log;; esac
done; echo new >> log; sleep 0.3";

fn assert_no_overlap(sandbox: &Sandbox) {
    let log = sandbox.read("log");
    assert!(!log.contains("overlap"), "{log}");
    let after = log.split_once("new\n").expect("the successor ran").1;
    assert!(!after.contains("old"), "the old command ran on");
}

#[test]
fn killing_palisade_kills_its_commands_whole_group_first() {
    let sandbox = Sandbox::new();
    let holder = sandbox.start(["run", "x", "--", "sh", "-c", FAMILY]);
    sandbox.until_written("log", "old");
    until("the child's pid", || !sandbox.read("child").is_empty());
    let successor = sandbox.start(["run", "x", "--", "sh", "-c", SUCCESSOR]);
    sandbox.until("x", 1, 1);
    holder.signal(Signal::KILL);
    assert_eq!(successor.end().0, Some(0));
    assert_no_overlap(&sandbox);
}

#[test]
fn killing_palisade_while_its_command_starts_leaves_no_command_behind() {
    let sandbox = Sandbox::new();
    // One file per run, named by its pid, removed at the end: a run that finds another's overlaps.
    let script = "ls run.* 2>/dev/null | while read f; do p=${f#run.}
        state=$(sed 's/.*) //; s/ .*//' /proc/$p/stat 2>/dev/null)
        case \"$state\" in ''|Z|X) ;; *) echo overlap $p $$ >> log;; esac; done
        : > run.$$; sleep 0.02; rm run.$$; echo done >> log";
    for delay_us in (0..12_000).step_by(200) {
        let run = sandbox.start(["run", "x", "--", "sh", "-c", script]);
        // Not to synchronise: to be killed at another moment each time is the test.
        std::thread::sleep(std::time::Duration::from_micros(delay_us));
        run.signal(Signal::KILL);
    }
    assert_eq!(sandbox.code(["run", "x", "--", "sh", "-c", script]), 0);
    assert!(!sandbox.read("log").contains("overlap"), "{}", sandbox.read("log"));
}

#[test]
fn a_stopped_palisade_loses_its_command_before_the_lock() {
    let sandbox = Sandbox::new();
    let holder = sandbox.start(["run", "x", "--ttl", "1s", "--", "sh", "-c", FAMILY]);
    sandbox.until_written("log", "old");
    until("the child's pid", || !sandbox.read("child").is_empty());
    let successor = sandbox.start(["run", "x", "--", "sh", "-c", SUCCESSOR]);
    sandbox.until("x", 1, 1);
    holder.signal(Signal::STOP);
    assert_eq!(successor.end().0, Some(0));
    assert_no_overlap(&sandbox);
    holder.signal(Signal::CONT);
    assert_eq!(holder.end().0, Some(76));
}

#[test]
fn a_command_whose_lock_cannot_be_renewed_is_asked_to_end_and_killed_before_the_deadline() {
    let sandbox = Sandbox::new();
    let script = format!("trap 'echo asked >> log' TERM; {FAMILY}; while :; do sleep 0.01; done");
    let holder = sandbox.start(["run", "x", "--ttl", "2s", "--", "sh", "-c", &script]);
    sandbox.until_written("log", "old");
    until("the child's pid", || !sandbox.read("child").is_empty());
    let successor = sandbox.start(["run", "x", "--", "sh", "-c", SUCCESSOR]);
    sandbox.until("x", 1, 1);
    // As long as another process sits on the folder's write lock, no renewal gets through.
    let write_lock = std::fs::File::open(sandbox.path("engine/write.lock")).unwrap();
    write_lock.lock().unwrap();
    let (code, said) = holder.end();
    assert_eq!(code, Some(76), "{said}");
    assert!(said.contains("renewed"), "{said}");
    assert!(sandbox.read("log").contains("asked"), "it was not asked before it was killed");
    assert!(!is_alive(sandbox.read("leader").trim()) && !is_alive(sandbox.read("child").trim()));
    write_lock.unlock().unwrap();
    assert_eq!(successor.end().0, Some(0));
    assert_no_overlap(&sandbox);
}

#[test]
fn without_its_guardian_a_command_does_not_go_on() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(["run", "x", "--", "sh", "-c", FAMILY]);
    sandbox.until_written("log", "old");
    let guardian = guardian_of(run.pid());
    kill_process(guardian, Signal::KILL).unwrap();
    let (code, said) = run.end();
    assert_eq!(code, Some(76));
    assert!(said.contains("guardian"), "{said}");
    let leader = sandbox.read("leader");
    until("the command to end", || !is_alive(leader.trim()));
}

#[test]
fn nothing_is_left_after_a_run() {
    let sandbox = Sandbox::new();
    let run = sandbox.start([
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "echo ready > log; until [ -e go ]; do sleep 0.02; done",
    ]);
    sandbox.until_written("log", "ready");
    let guardian = guardian_of(run.pid());
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(run.end().0, Some(0));
    assert!(!is_alive(&guardian.as_raw_nonzero().to_string()));
}

/// Its guardian, once that has come up.
fn guardian_of(palisade: Pid) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", palisade.as_raw_nonzero());
    let is_guardian = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "lock-guardian")
    };
    let mut guardian = None;
    until("a guardian", || {
        let children = std::fs::read_to_string(&children).unwrap();
        guardian =
            children.split_whitespace().find(is_guardian).and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        guardian.is_some()
    });
    guardian.unwrap()
}

/// The moment between a command's start and palisade's word of it, slowed down.
#[test]
fn a_guardian_that_was_not_told_the_group_finds_it_by_its_claim() {
    let spawn = |claim: &str| {
        Command::new("sleep").arg("1000").env("PALISADE_CLAIM", claim).process_group(0).spawn().unwrap()
    };
    let sandbox = Sandbox::new();
    let (mut ours, mut others) = (spawn("claim-of-this-test"), spawn("claim-of-this-tests-neighbour"));
    let mut guardian = sandbox.palisade(["__palisade-guardian"]).stdin(Stdio::piped()).spawn().unwrap();
    guardian.stdin.take().unwrap().write_all(b"claim claim-of-this-test\n").unwrap();
    until("the guardian to have done its duty", || guardian.try_wait().unwrap().is_some());
    assert_eq!(ours.wait().unwrap().signal(), Some(9));
    assert!(others.try_wait().unwrap().is_none());
    others.kill().unwrap();
    others.wait().unwrap();
}
