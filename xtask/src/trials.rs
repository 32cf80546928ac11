use std::process::Command;
use std::time::Duration;

use crate::steps::{Steps, cargo};

/// Far above what any of these takes.
const LIMIT: Duration = Duration::from_mins(10);

/// The profile in `Cargo.toml` that these are built with.
const PROFILE: &str = "trial";

/// Short forms of what one does to an engine before it is released, at nearly the speed of a release.
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
];

/// Simulates, verifies and measures, briefly.
pub(crate) fn take(steps: &mut Steps, round: &str) {
    let build = ["build", "--profile", PROFILE, "--package", "palisade-cli", "--package", "palisade-testkit"];
    steps.command(format!("a fast build{round}"), cargo(&[&build[..], &["--bins"]].concat()));
    steps.bounded(format!("simulation{round}"), program("palisade-simulate", &["--seeds", "10000"]), LIMIT);
    for (name, args) in VERIFIED {
        let mut verify = program("palisade", &["verify"]);
        verify.args(*args);
        steps.bounded(format!("{name}{round}"), verify, LIMIT);
    }
    steps.bounded(format!("bench{round}"), program("palisade", &["bench", "--all", "--quick"]), LIMIT);
}

fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(format!("target/{PROFILE}/{name}"));
    command.args(args);
    command
}
