//! `palisade bench`: what it prints can be relied on. How fast anything is, no test says.

mod common;

use std::process::Output;

use common::{Sandbox, no_panic, stderr, stdout, until};
use rustix::process::Signal;
use serde_json::Value;

/// What every row has, measured or not.
const KEYS: [&str; 13] = [
    "shape",
    "variant",
    "p50_us",
    "p99_us",
    "per_second",
    "handoffs_per_second",
    "requests_per_op",
    "calls_per_op",
    "jain",
    "cpu_us_per_op",
    "rss_mib",
    "takeover_ms",
    "note",
];

fn rows(report: &Value, shape: &str) -> Vec<Value> {
    let rows = report["rows"].as_array().unwrap().clone();
    rows.into_iter().filter(|row| row["shape"] == shape).collect()
}

fn report(output: &Output) -> Value {
    no_panic(output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in report["rows"].as_array().unwrap() {
        for key in KEYS {
            assert!(row.get(key).is_some(), "{key} in {row}");
        }
        for key in ["median", "min", "max"] {
            assert!(row["ratio_to_raw"].get(key).is_some(), "{key} in {row}");
        }
    }
    for key in ["engine", "version", "build", "began", "machine"] {
        assert!(report.get(key).is_some(), "{key}");
    }
    report
}

#[test]
fn every_shape_of_the_memory_engine() {
    let sandbox = Sandbox::new();
    let report = report(&sandbox.run(["bench", "--quick", "--json", "--engine", "memory:"]));
    assert_eq!(report["engine"], "memory");
    for shape in ["uncontended", "throughput", "contended", "keepalive"] {
        for row in rows(&report, shape) {
            assert!(row["ratio_to_raw"]["median"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let taken_over = &rows(&report, "takeover")[0];
    assert!(taken_over["takeover_ms"].is_null());
    assert!(taken_over["note"].as_str().unwrap().starts_with("n/a: "), "{taken_over}");
}

#[test]
fn every_shape_of_an_engine_that_it_starts_itself() {
    let sandbox = Sandbox::new();
    let output = sandbox
        .palisade(["bench", "--quick", "--json", "--engine", "local:file"])
        .env("TMPDIR", sandbox.path(""))
        .output()
        .unwrap();
    let report = report(&output);
    assert_eq!(report["engine"], "embedded");
    for row in rows(&report, "uncontended") {
        let commits = row["requests_per_op"].as_f64().unwrap();
        assert!((2.0..2.5).contains(&commits), "one commit to take, one to release: {row}");
        assert!(row["p50_us"].as_f64().unwrap() <= row["p99_us"].as_f64().unwrap());
    }
    let contended = rows(&report, "contended");
    let variants: Vec<&str> = contended.iter().map(|row| row["variant"].as_str().unwrap()).collect();
    assert_eq!(variants, ["16 waiters", "64 waiters", "queue of 16", "queue of 64"]);
    for row in &contended {
        assert!(row["handoffs_per_second"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["requests_per_op"].as_f64().unwrap() < 4.0, "nobody polls, no herd: {row}");
    }
    assert!(contended[0]["jain"].as_f64().unwrap() > 0.5);
    for row in rows(&report, "keepalive") {
        assert!(row["requests_per_op"].as_f64().unwrap() <= 3.0, "renewed together: {row}");
    }
    assert!(rows(&report, "takeover")[0]["takeover_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(std::fs::read_dir(sandbox.path("")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn an_engine_in_use_is_left_as_it_was() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(["run", "bench", "--", "sleep", "1000"]);
    sandbox.until("bench", 1, 0);
    let output = sandbox.run(["bench", "--quick", "--shape", "uncontended,command"]);
    no_panic(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["embedded engine", "uncontended", "ratio to raw", "two bare SQLite commits", "command"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("throughput"), "only what was asked for:\n{text}");
    let names = std::fs::read_dir(sandbox.path("engine")).unwrap().flatten().map(|entry| entry.file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with("bench")));
    sandbox.until("bench", 1, 0);
}

#[test]
fn what_cannot_be_measured_is_said_and_is_64() {
    let sandbox = Sandbox::new();
    let bad: &[(&[&str], &str)] = &[
        (&["--shape", "sideways"], "uncontended, throughput, contended, keepalive, takeover"),
        (&["--shape", ""], "there are"),
        (&["--engine", "carrier-pigeon:"], "memory"),
        (&["--engine", "nonsense"], "local:file"),
        (&["--engine", "local:moon"], "local:file"),
        (&["--engine", "memory:", "--demand", "network"], "network"),
        (&["--quick", "--goals"], "--goals"),
        (&["--quick", "--write", "page.md"], "--write"),
    ];
    for (args, says) in bad {
        let output = sandbox.run(["bench"].iter().chain(*args));
        no_panic(&output);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("temporary")).unwrap();
    let mut command = sandbox.palisade(["bench", "--engine", "local:file", "--shape", "keepalive"]);
    let mut child = command.env("TMPDIR", sandbox.path("temporary")).spawn().unwrap();
    let left = || std::fs::read_dir(sandbox.path("temporary")).unwrap().count();
    until("the run to begin", || left() > 0);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    until("the run to end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(left(), 0);
}
