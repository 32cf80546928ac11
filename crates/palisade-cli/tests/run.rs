//! `palisade run`: what it takes, what it tells the command, and how it ends.

mod common;

use std::os::unix::fs::PermissionsExt;

use std::process::Command;

use common::{Sandbox, stderr, stdout, until};
use rustix::process::Signal;

#[test]
fn the_exit_code_is_the_commands_own() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(["run", "x", "--", "true"]), 0);
    assert_eq!(sandbox.code(["run", "x", "--", "sh", "-c", "exit 42"]), 42);
    assert_eq!(sandbox.code(["run", "x", "--", "sh", "-c", "kill -KILL $$"]), 128 + 9);
    assert_eq!(sandbox.code(["run", "x", "--", "sh", "-c", "kill -TERM $$"]), 128 + 15);
    assert_eq!(sandbox.json(["ls", "--json"]), serde_json::json!([]));
}

#[test]
fn a_command_that_cannot_be_run_is_reported_as_by_a_shell() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(["run", "x", "--", "no-such-command-here"]), 127);
    assert_eq!(sandbox.code(["run", "x", "--", "/"]), 126);
    let script = sandbox.path("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(sandbox.code(["run".as_ref(), "x".as_ref(), "--".as_ref(), script.as_os_str()]), 126);
    assert_eq!(sandbox.json(["ls", "--json"]), serde_json::json!([]), "the claim was given back");
}

#[test]
fn the_command_is_told_what_it_holds() {
    let sandbox = Sandbox::new();
    let show = "echo $PALISADE_RESOURCE $PALISADE_TOKEN ${#PALISADE_CLAIM} ${PALISADE_SLOT-none}";
    let told = |args: &[&str]| {
        let mut all = vec!["run", "job x"];
        all.extend(args);
        all.extend(["--", "sh", "-c", show]);
        stdout(&sandbox.run(all)).trim().to_owned()
    };
    let first = told(&[]);
    let second = told(&[]);
    let token = |line: &str| line.split(' ').nth(2).unwrap().parse::<u64>().unwrap();
    assert!(first.starts_with("job x ") && first.ends_with(" 32 none"), "{first}");
    assert!(token(&second) > token(&first));
    assert!(told(&["--slots", "2"]).ends_with(" 32 0"));
    assert!(told(&["--shared"]).ends_with(" 32 none"));

    let output = sandbox.run([
        "run",
        "b",
        "--and",
        "a",
        "--",
        "sh",
        "-c",
        "echo \"$PALISADE_RESOURCE\n$PALISADE_TOKENS\"",
    ]);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "b");
    assert!(lines[1].ends_with(" a") && lines[2].ends_with(" b"), "{lines:?}");
}

#[test]
fn what_is_held_is_not_obtained() {
    let sandbox = Sandbox::new();
    let holder = sandbox.start(["run", "x", "--", "sleep", "1000"]);
    sandbox.until("x", 1, 0);
    assert_eq!(sandbox.code(["run", "x", "--no-wait", "--", "touch", "ran"]), 75);
    assert_eq!(sandbox.code(["run", "x", "--wait", "200ms", "--", "touch", "ran"]), 75);
    assert_eq!(sandbox.code(["run", "y", "--and", "x", "--no-wait", "--", "touch", "ran"]), 75);
    assert_eq!(sandbox.code(["run", "x", "--shared", "--no-wait", "--", "touch", "ran"]), 75);
    for wait in ["--no-wait", "--wait=200ms"] {
        let said = stderr(&sandbox.run(["run", "a", "--and", "x", wait, "--", "touch", "ran"]));
        assert!(said.contains("x: not obtained: held by ") && said.contains("sleep"), "{said}");
    }
    assert!(!sandbox.path("ran").exists());
    sandbox.until("y", 0, 0);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().0, Some(128 + 15));
    assert_eq!(sandbox.code(["run", "x", "--no-wait", "--", "true"]), 0);
}

#[test]
fn a_waiter_gets_its_turn_and_can_leave() {
    let sandbox = Sandbox::new();
    let holder = sandbox.start(["run", "x", "--", "sh", "-c", "until [ -e go ]; do sleep 0.02; done"]);
    sandbox.until("x", 1, 0);
    let leaver = sandbox.start(["run", "x", "--", "touch", "left"]);
    sandbox.until("x", 1, 1);
    let waiter = sandbox.start(["run", "x", "--", "touch", "ran"]);
    sandbox.until("x", 1, 2);
    leaver.signal(Signal::INT);
    assert_eq!(leaver.end().0, Some(128 + 2));
    sandbox.until("x", 1, 1);
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(holder.end().0, Some(0));
    assert_eq!(waiter.end().0, Some(0));
    assert!(sandbox.path("ran").exists() && !sandbox.path("left").exists());
}

#[test]
fn verbose_says_who_is_waited_for() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(["--label", "nightly", "run", "x", "--", "sleep", "1000"]);
    sandbox.until("x", 1, 0);
    let output = sandbox.run(["run", "-v", "x", "--wait", "2500ms", "--", "true"]);
    assert_eq!(output.status.code(), Some(75));
    let said = stderr(&output);
    assert!(said.contains("waiting for x: held by ") && said.contains(" nightly for "), "{said}");
}

#[test]
fn slots_and_sharers_come_in_together() {
    let sandbox = Sandbox::new();
    let _first = sandbox.start(["run", "s", "--slots", "2", "--", "sleep", "1000"]);
    let _second = sandbox.start(["run", "s", "--slots", "2", "--", "sleep", "1000"]);
    sandbox.until("s", 2, 0);
    assert_eq!(sandbox.code(["run", "s", "--slots", "2", "--no-wait", "--", "true"]), 75);
    assert_eq!(sandbox.code(["run", "s", "--slots", "3", "--no-wait", "--", "true"]), 64, "another number");
    let _reader = sandbox.start(["run", "r", "--shared", "--", "sleep", "1000"]);
    sandbox.until("r", 1, 0);
    assert_eq!(sandbox.code(["run", "r", "--shared", "--no-wait", "--", "true"]), 0);
    assert_eq!(sandbox.code(["run", "r", "--no-wait", "--", "true"]), 75);
}

#[test]
fn overlapping_sets_do_not_deadlock() {
    let sandbox = Sandbox::new();
    let runs: Vec<_> = (0..6)
        .map(|turn| {
            let (first, second) = if turn % 2 == 0 { ("a", "b") } else { ("b", "a") };
            sandbox.start(["run", first, "--and", second, "--", "sh", "-c", "echo in >> log"])
        })
        .collect();
    for run in runs {
        assert_eq!(run.end().0, Some(0));
    }
    assert_eq!(sandbox.read("log").lines().count(), 6);
}

#[test]
fn signals_reach_the_command() {
    let sandbox = Sandbox::new();
    let script =
        "trap 'echo usr1 >> log' USR1; trap 'echo hup >> log' HUP; trap 'echo term >> log; exit 7' TERM
                  echo ready >> log; while :; do sleep 0.02; done";
    let run = sandbox.start(["run", "x", "--", "sh", "-c", script]);
    sandbox.until_written("log", "ready");
    for (signal, heard) in [(Signal::USR1, "usr1"), (Signal::HUP, "hup"), (Signal::TERM, "term")] {
        run.signal(signal);
        sandbox.until_written("log", heard);
    }
    assert_eq!(run.end().0, Some(7));
}

#[test]
fn an_evicted_command_is_stopped() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo term >> log; exit 0' TERM; echo ready >> log; while :; do sleep 0.02; done";
    let run = sandbox.start(["run", "x", "--", "sh", "-c", script]);
    sandbox.until_written("log", "ready");
    assert_eq!(sandbox.code(["evict", "x", "--reason", "maintenance at noon"]), 0);
    let (code, said) = run.end();
    assert_eq!(code, Some(76));
    assert!(said.contains("maintenance at noon"), "{said}");
    assert!(sandbox.read("log").contains("term"));
}

#[test]
fn what_an_operator_wrote_does_not_drive_the_holders_terminal() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(["run", "x", "--", "sleep", "1000"]);
    sandbox.until("x", 1, 0);
    assert_eq!(sandbox.code(["evict", "x", "--reason", "at noon\x1b[2J\npalisade: all is well"]), 0);
    let (code, said) = run.end();
    assert_eq!(code, Some(76));
    assert!(said.contains("at noon\u{fffd}[2J"), "{said:?}");
    assert!(!said.contains('\x1b') && said.lines().count() == 1, "{said:?}");
}

#[test]
fn a_command_that_ignores_the_request_is_killed() {
    let sandbox = Sandbox::new();
    let script =
        "trap '' TERM; sleep 1000 & echo $! > child; echo ready >> log; while :; do sleep 0.02; done";
    let run = sandbox.start(["run", "x", "--", "sh", "-c", script]);
    sandbox.until_written("log", "ready");
    assert_eq!(sandbox.code(["evict", "x", "--reason", "now"]), 0);
    assert_eq!(run.end().0, Some(76));
    let child = sandbox.read("child");
    until("the whole group to end", || !common::is_alive(child.trim()));
}

#[test]
fn no_run_is_longer_than_at_most() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(["run", "x", "--at-most", "300ms", "--", "sleep", "1000"]);
    assert_eq!(output.status.code(), Some(76));
    assert!(stderr(&output).contains("longest hold is over"), "{}", stderr(&output));
    assert_eq!(sandbox.code(["run", "x", "--at-most", "1h", "--no-wait", "--", "true"]), 0);
}

#[test]
fn no_two_runs_begin_within_at_least() {
    let sandbox = Sandbox::new();
    let run = |wait: &[&str]| {
        let mut args = vec!["run", "x", "--at-least", "2s"];
        args.extend(wait);
        args.extend(["--", "sh", "-c", "echo ran >> log"]);
        sandbox.run(args)
    };
    assert_eq!(run(&["--no-wait"]).status.code(), Some(0));
    let soon = run(&["--no-wait"]);
    assert_eq!(soon.status.code(), Some(75));
    assert!(stderr(&soon).contains("too recently"), "{}", stderr(&soon));
    assert_eq!(run(&[]).status.code(), Some(0), "it waits until it is due");
    assert_eq!(sandbox.read("log").lines().count(), 2);
    assert_eq!(sandbox.json(["ls", "--json"]), serde_json::json!([]));
}

#[test]
fn a_command_on_a_terminal_starts_with_no_signal_blocked() {
    let sandbox = Sandbox::new();
    let (_control, terminal) = terminal();
    let script = "grep SigBlk /proc/self/status";
    let output = sandbox.palisade(["run", "x", "--", "sh", "-c", script]).stdin(terminal).output().unwrap();
    let blocked = stdout(&output);
    assert_eq!(blocked.trim_end(), "SigBlk:\t0000000000000000");
}

/// A terminal and who types at it.
fn terminal() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    unlockpt(&control).unwrap();
    let path = ptsname(&control, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let terminal = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap();
    (control, terminal)
}

/// A script in a session of its own, with a terminal.
fn script(sandbox: &Sandbox, text: &str, terminal: std::os::fd::OwnedFd) -> std::process::Child {
    let mut command = Command::new("env");
    command.args(["--default-signal", "setsid", "--ctty", "--wait"]);
    command.args(["bash", "-c", text, env!("CARGO_BIN_EXE_palisade")]);
    command.env("PALISADE_ENGINE", sandbox.url()).current_dir(sandbox.path(""));
    command.stderr(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap()).stdin(terminal);
    command.spawn().unwrap()
}

#[test]
fn a_key_that_ends_the_command_ends_the_script_too() {
    let sandbox = Sandbox::new();
    let (control, terminal) = terminal();
    let text = "\"$0\" run x -- sh -c 'echo up > up; exec sleep 1000'; echo next > next";
    let mut script = script(&sandbox, text, terminal);
    sandbox.until_written("up", "up");
    // The command may not have the terminal yet: press the key until it is heard.
    until("the script to end", || {
        let _ = rustix::io::write(&control, b"\x03");
        script.try_wait().unwrap().is_some()
    });
    assert!(!sandbox.path("next").exists(), "the script went on");
}

#[test]
fn a_run_in_the_background_of_a_script_leaves_it_the_terminal() {
    let sandbox = Sandbox::new();
    let (control, terminal) = terminal();
    let text = "\"$0\" run x -- sh -c 'echo up > up; exec sleep 1000' & until [ -s up ]; do sleep 0.01; done
        read -r line; echo \"$line\" > line; kill $!; wait";
    let mut script = script(&sandbox, text, terminal);
    sandbox.until_written("up", "up");
    rustix::io::write(&control, b"typed\n").unwrap();
    sandbox.until_written("line", "typed");
    until("the script to end", || script.try_wait().unwrap().is_some());
}
