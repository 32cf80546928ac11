use std::process::Command;
use std::time::Duration;

use crate::steps::Steps;

/// Far above what any of these takes.
const LIMIT: Duration = Duration::from_mins(10);

/// Short forms of what one does to an engine before it is released, by what the tests are built with.
/// Each draws another seed every time, and prints it.
const VERIFIED: &[(&str, &[&str])] = &[
    ("verify local:file", &["--engine", "local:file", "--for", "20s", "--faults", "pause,kill,cancel"]),
    ("verify local:memory", &["--engine", "local:memory", "--for", "15s"]),
    ("verify memory:", &["--engine", "memory:", "--for", "5s"]),
    (
        "verify lock-set",
        &["--engine", "local:file", "--workload", "lock-set", "--ttl", "500ms", "--for", "15s"],
    ),
    ("verify local:redis", &["--engine", "local:redis", "--for", "25s"]),
    (
        "verify lock-set on local:redis",
        &["--engine", "local:redis", "--workload", "lock-set", "--ttl", "1s", "--for", "20s"],
    ),
    (
        "verify local:redlock*5",
        &["--engine", "local:redlock*5", "--registers", "file:target/verify-registers", "--for", "25s"],
    ),
    ("verify local:etcd*3", &["--engine", "local:etcd*3", "--ttl", "3s", "--for", "25s"]),
    ("verify local:postgres", &["--engine", "local:postgres", "--for", "25s"]),
    ("verify local:mariadb", &["--engine", "local:mariadb", "--for", "25s"]),
    ("verify local:postgres-advisory", &["--engine", "local:postgres-advisory", "--for", "25s"]),
    ("verify local:mariadb-advisory", &["--engine", "local:mariadb-advisory", "--for", "20s"]),
    ("verify local:zk*3", &["--engine", "local:zk*3", "--ttl", "3s", "--for", "25s"]),
];

/// Simulates, verifies and measures, briefly, by commands that are built already.
pub(crate) fn take(steps: &mut Steps, round: &str) {
    steps.bounded(format!("simulation{round}"), program("palisade-simulate", &["--seeds", "10000"]), LIMIT);
    for (name, args) in VERIFIED {
        let mut verify = program("palisade", &["verify"]);
        verify.args(*args);
        steps.bounded(format!("{name}{round}"), verify, LIMIT);
    }
    // The other shapes mostly wait for TTLs, on ten engines in a row.
    let bench = ["bench", "--all", "--quick", "--shape", "uncontended,throughput,contended,command"];
    steps.bounded(format!("bench{round}"), program("palisade", &bench), LIMIT);
}

fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(format!("target/debug/{name}"));
    command.args(args);
    command
}
