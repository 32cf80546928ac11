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

/// As `systemctl stop` does.
#[test]
fn a_signal_to_every_process_is_the_commands_to_act_on() {
    let sandbox = Sandbox::new();
    let script = "trap 'until [ -e go ]; do sleep 0.02; done; echo done >> log; exit 7' TERM
        echo $$ > leader; echo ready >> log; while :; do sleep 0.02; done";
    let run = sandbox.start(["run", "x", "--", "sh", "-c", script]);
    sandbox.until_written("log", "ready");
    let guardian = guardian_of(run.pid());
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::TSTP] {
        kill_process(guardian, signal).unwrap();
    }
    let leader = Pid::from_raw(sandbox.read("leader").trim().parse().unwrap()).unwrap();
    for pid in [guardian, run.pid(), leader] {
        kill_process(pid, Signal::TERM).unwrap();
    }
    std::fs::write(sandbox.path("go"), "").unwrap();
    let (code, said) = run.end();
    assert_eq!(code, Some(7), "{said}");
    assert!(sandbox.read("log").contains("done"));
}

#[test]
fn who_kills_palisade_by_name_leaves_the_guardian() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(["run", "x", "--", "sleep", "1000"]);
    let guardian = guardian_of(run.pid()).as_raw_nonzero();
    for name in ["cmdline", "comm"] {
        let shown = std::fs::read_to_string(format!("/proc/{guardian}/{name}")).unwrap();
        assert!(shown.contains("lock-guardian") && !shown.contains("palisade"), "{shown}");
    }
}

#[test]
fn a_stopped_guardian_is_woken() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(["run", "x", "--", "sleep", "1000"]);
    let guardian = guardian_of(run.pid());
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", guardian.as_raw_nonzero())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    // While palisade cannot act, so that the stop is sure to be seen.
    run.signal(Signal::STOP);
    kill_process(guardian, Signal::STOP).unwrap();
    until("the guardian to stop", is_stopped);
    run.signal(Signal::CONT);
    until("the guardian to go on", || !is_stopped());
}

/// A command whose child is in a session of its own, with or without the claim in its environment.
fn with_a_stray(env: &str) -> String {
    format!(
        "setsid {env} sh -c 'echo $$ > leader; echo $$ > child
            while :; do echo old >> log; sleep 0.01; done' & wait"
    )
}

#[test]
fn a_child_in_a_session_of_its_own_ends_before_the_lock_passes_on() {
    for (signal, env) in [
        (Signal::KILL, ""),
        (Signal::KILL, "env -u PALISADE_CLAIM"),
        (Signal::STOP, ""),
        (Signal::STOP, "env -u PALISADE_CLAIM"),
    ] {
        let sandbox = Sandbox::new();
        let holder = sandbox.start(["run", "x", "--ttl", "2s", "--", "sh", "-c", &with_a_stray(env)]);
        sandbox.until_written("log", "old");
        let successor = sandbox.start(["run", "x", "--", "sh", "-c", SUCCESSOR]);
        sandbox.until("x", 1, 1);
        holder.signal(signal);
        assert_eq!(successor.end().0, Some(0));
        assert_no_overlap(&sandbox);
    }
}

#[test]
fn a_child_in_a_session_of_its_own_loses_the_lock_too() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(["run", "x", "--", "sh", "-c", &with_a_stray("")]);
    sandbox.until_written("log", "old");
    assert_eq!(sandbox.code(["evict", "x", "--reason", "test"]), 0);
    assert_eq!(run.end().0, Some(76));
    assert!(!is_alive(sandbox.read("leader").trim()));
}

#[test]
fn what_a_command_leaves_running_when_it_ends_is_left_alone() {
    let sandbox = Sandbox::new();
    let script = "exec > /dev/null 2>&1; sleep 1000 & echo $! > same; setsid sleep 1000 & echo $! > own";
    assert_eq!(sandbox.code(["run", "x", "--", "sh", "-c", script]), 0);
    for name in ["same", "own"] {
        let pid = sandbox.read(name);
        assert!(is_alive(pid.trim()), "{name}");
        kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    }
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
    let mut guardian = sandbox.palisade(["__lock-guardian"]).stdin(Stdio::piped()).spawn().unwrap();
    guardian.stdin.take().unwrap().write_all(b"claim claim-of-this-test\n").unwrap();
    until("the guardian to have done its duty", || guardian.try_wait().unwrap().is_some());
    assert_eq!(ours.wait().unwrap().signal(), Some(9));
    assert!(others.try_wait().unwrap().is_none());
    others.kill().unwrap();
    others.wait().unwrap();
}

#[test]
fn a_guardian_that_was_told_neither_group_nor_claim_finds_them_by_the_lifeline() {
    let sandbox = Sandbox::new();
    // Another process has the same file open, as one that asks whether the session is alive does.
    let script = "(exec 9> lifeline; exec sleep 1000) & echo $! > theirs
        exec 9>> lifeline; sleep 1000 & echo $! > ours
        echo lifeline 9 | \"$0\" __lock-guardian; exit $?";
    let status = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_palisade")])
        .current_dir(sandbox.path(""))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(!is_alive(sandbox.read("ours").trim()));
    let theirs = sandbox.read("theirs");
    assert!(is_alive(theirs.trim()));
    kill_process(Pid::from_raw(theirs.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}
