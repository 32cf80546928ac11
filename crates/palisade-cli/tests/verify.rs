//! `palisade verify`: what it prints, what it refuses, and what it makes of saved histories.

mod common;

use std::path::PathBuf;
use std::process::Stdio;

use common::{Sandbox, no_panic, stderr, stdout, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn history(name: &str) -> String {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../palisade-testkit/testdata/histories");
    data.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_run_tells_programs_and_people_what_it_saw() {
    let sandbox = Sandbox::new();
    let report = sandbox.path("report");
    let report = report.to_str().unwrap();
    let run = ["verify", "--for", "3s", "--ttl", "400ms", "--faults", "pause,kill,cancel", "--seed", "7"];
    let output = sandbox.run(run.into_iter().chain(["--json", "--report", report]));
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let summary: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(summary["seed"], 7);
    assert_eq!(
        (&summary["violations"], &summary["undecided"]),
        (&Value::from(vec![0; 0]), &Value::from(vec![0; 0]))
    );
    for counted in ["ops", "grants", "faults"] {
        assert!(summary[counted].as_u64().unwrap() > 0, "{counted} in {summary}");
    }
    for counted in ["lost_updates", "stale_refused"] {
        assert!(summary[counted].is_u64(), "{counted} in {summary}");
    }
    let page = sandbox.read("report/report.html");
    assert!(
        page.contains("--seed") && page.contains("Nothing was violated"),
        "the page lacks its essentials"
    );

    // What was recorded can be checked again.
    let recorded = sandbox.path("report/history.jsonl");
    for model in ["fenced-mutex", "rw", "permits"] {
        let again = sandbox.run(["verify", "--check", recorded.to_str().unwrap(), "--model", model]);
        assert_eq!(again.status.code(), Some(0), "{model}: {}{}", stdout(&again), stderr(&again));
        assert!(stdout(&again).contains("linearizable"), "{}", stdout(&again));
    }
    let everything = sandbox.run(["verify", "--check", recorded.to_str().unwrap()]);
    assert_eq!(everything.status.code(), Some(0), "{}{}", stdout(&everything), stderr(&everything));
    assert!(stdout(&everything).contains("nothing was violated"), "{}", stdout(&everything));
    // The engine is the user's own: nothing may be left in it.
    assert_eq!(stdout(&sandbox.run(["ls"])), "");
}

#[test]
fn a_worker_that_a_stranger_kills_is_not_held_against_the_engine() {
    let sandbox = Sandbox::new();
    let run = ["verify", "--for", "4s", "--ttl", "400ms", "--faults", "none", "--json"];
    let verify = sandbox.palisade(run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // `env` becomes palisade, so the process is the same.
    let children = format!("/proc/{0}/task/{0}/children", verify.id());
    let kill_one = || {
        let worker = std::fs::read_to_string(&children).ok()?.split_whitespace().nth(2)?.parse().ok()?;
        kill_process(Pid::from_raw(worker)?, Signal::KILL).ok()
    };
    until("a worker is there to be killed", || kill_one().is_some());
    let output = verify.wait_with_output().unwrap();
    let summary: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let found: Vec<&str> =
        summary["violations"].as_array().unwrap().iter().map(|v| v["checker"].as_str().unwrap()).collect();
    assert_eq!((output.status.code(), found), (Some(1), vec!["workers"]), "{summary}");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    let jepsen = history("jepsen-etcd/etcd_002.log");
    let cases: &[(&[&str], &str)] = &[
        (&["--faults", "cut"], "no network"),
        (&["--faults", "restart"], "no server"),
        (&["--faults", "clock"], "boot-time clock"),
        (&["--faults", "gremlins"], "pause, kill"),
        (&["--workload", "juggling"], "lock-set"),
        (&["--engine", "memory:", "--faults", "kill"], "inside one process"),
        (&["--engine", "memory:", "--workload", "lock-set"], "inside one process"),
        (&["--engine", "local:nothing"], "local:file"),
        (&["--engine", "local:file*3"], "one folder"),
        (&["--engine", "local:file*x"], "1 to 9"),
        (&["--engine", "nonsense"], "no engine URL"),
        (&["--engine", "carrier-pigeon:x"], "carrier-pigeon"),
        (&["--ttl", "1ms"], "50 ms"),
        (&["--for", "soon"], "500ms"),
        (&["--for", "0"], "at least a second"),
        (&["--workload", "lock-set", "--faults", "kill"], "plan of their own"),
        (&["--registers", "memory:"], "inside one process"),
        (&["--demand", "bogus"], "bogus"),
        (&["--report", "/proc/nowhere"], "/proc/nowhere"),
        (&["--check", "x", "--model", "mutex", "--seed", "1"], "--seed"),
        (&["--check", &jepsen], "model"),
        (&["--check", "x", "--model", "chess"], "fenced-mutex"),
    ];
    for (arguments, expected) in cases {
        let output = sandbox.run(["verify"].iter().chain(*arguments));
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        no_panic(&output);
    }
}

#[test]
fn saved_histories_of_others_are_judged() {
    let sandbox = Sandbox::new();
    let cases = [
        ("jepsen-etcd/etcd_002.log", "register", 0, "linearizable"),
        ("jepsen-etcd/etcd_000.log", "register", 1, "not linearizable"),
        ("kv/c10-ok.txt", "kv", 0, "linearizable"),
        ("kv/c10-bad.txt", "kv", 1, "not linearizable"),
        ("knossos/mutex-bad-etcd.edn", "mutex", 1, "not linearizable"),
        ("knossos/mutex-bad-etcd.edn", "kv", 64, "kv"),
        ("README.md", "mutex", 69, "README.md"),
        ("no-such-file", "mutex", 69, "no-such-file"),
    ];
    for (file, model, code, expected) in cases {
        let output = sandbox.run(["verify", "--check", &history(file), "--model", model]);
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{file} {model}: {said}");
        assert!(said.contains(expected), "{file} {model}: {said}");
        no_panic(&output);
    }
}
