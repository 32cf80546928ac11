//! Engines that are right, under every fault that can be done to them.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use palisade_testkit::verify::{Settings, Verdict, Workload};
use palisade_verify_tests::{run, settings};

const HELPER: &str = env!("CARGO_BIN_EXE_palisade-verify-helper");

fn main() -> ExitCode {
    let mut trials: Vec<Trial> = ["memory:", "local:memory", "local:file"]
        .into_iter()
        .map(|engine| Trial::test(engine, move || passes(&settings(HELPER, engine))))
        .collect();
    trials.push(Trial::test("lock-set on local:file", || {
        let workloads = vec![Workload::LockSet];
        passes(&Settings { workloads, duration: Duration::from_secs(8), ..settings(HELPER, "local:file") })
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn passes(settings: &Settings) -> Result<(), Failed> {
    let outcome = run(settings)?;
    if outcome.verdict() == Verdict::Passed { Ok(()) } else { Err(outcome.to_string().into()) }
}
