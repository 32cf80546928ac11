//! Bugs of other libraries: each must be found, by a checker that is made for it.
//!
//! Each is tried with the workload and the faults that provoke it, which takes seconds. With
//! `PALISADE_BROADLY=1` in the environment, with everything that `palisade verify --faults
//! pause,kill,cancel` does unless told otherwise: then each takes a quarter of a minute, and any
//! checker may find it.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use palisade_testkit::history::FaultKind;
use palisade_testkit::verify::{Bug, Settings, Workload};
use palisade_verify_tests::{run, settings};

const HELPER: &str = env!("CARGO_BIN_EXE_palisade-verify-helper");

fn main() -> ExitCode {
    let others = Bug::ALL.iter().filter(|bug| **bug != Bug::NaiveTtlLock);
    let mut trials: Vec<Trial> =
        others.map(|bug| Trial::test(bug.name(), move || is_found_soon(*bug))).collect();
    // Found by luck would not do.
    trials.extend((1..=10).map(|seed| {
        let naive = Bug::NaiveTtlLock;
        Trial::test(format!("{}, run {seed} of 10", naive.name()), move || is_found(naive, seed))
    }));
    trials.push(Trial::test("a server that forgets", a_server_that_forgets_is_found));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A run is short, and some bugs need a fault to strike in the right millisecond: three tries.
fn is_found_soon(bug: Bug) -> Result<(), Failed> {
    is_found(bug, 1).or_else(|_| is_found(bug, 2)).or_else(|_| is_found(bug, 3))
}

fn is_found(bug: Bug, seed: u64) -> Result<(), Failed> {
    if std::env::var_os("PALISADE_BROADLY").is_some() {
        return is_found_broadly(bug, seed);
    }
    let sets = bug.workload() == Workload::LockSet;
    let outcome = run(&Settings {
        workloads: vec![bug.workload()],
        faults: Some(bug.faults().to_vec()),
        bug: Some(bug.name().to_owned()),
        // An element takes half a TTL to add, and what is wrong shows on one in many.
        duration: Duration::from_secs(if sets { 12 } else { 8 }),
        ttl: Some(Duration::from_millis(if sets { 200 } else { 400 })),
        seed,
        ..settings(HELPER, "local:file")
    })?;
    let found: Vec<&str> = outcome.findings.violations.iter().map(|violation| violation.checker).collect();
    let right = found.iter().any(|checker| bug.found_by().contains(checker));
    if right { Ok(()) } else { Err(format!("{:?} should have found it: {outcome}", bug.found_by()).into()) }
}

fn is_found_broadly(bug: Bug, seed: u64) -> Result<(), Failed> {
    let outcome = run(&Settings {
        faults: Some(vec![FaultKind::Pause, FaultKind::Kill, FaultKind::Cancel]),
        bug: Some(bug.name().to_owned()),
        duration: Duration::from_secs(15),
        seed,
        ..settings(HELPER, "local:file")
    })?;
    println!("{}: {outcome}", bug.name());
    if outcome.findings.violations.is_empty() { Err("nothing found it".into()) } else { Ok(()) }
}

/// A server that is killed and comes back empty grants what is held, and forgets what was written.
fn a_server_that_forgets_is_found() -> Result<(), Failed> {
    let outcome = run(&Settings {
        faults: Some(vec![FaultKind::Restart]),
        workloads: vec![Workload::Mutex, Workload::Fence, Workload::Register],
        ..settings(HELPER, "local:forgetful")
    })?;
    let found: Vec<&str> = outcome.findings.violations.iter().map(|violation| violation.checker).collect();
    if found.contains(&"tokens") && (found.contains(&"fenced") || found.contains(&"linear")) {
        return Ok(());
    }
    Err(outcome.to_string().into())
}
