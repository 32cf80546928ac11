//! A suite that cannot fail proves nothing: each deliberately broken engine must turn it red.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use palisade_testkit::broken::{BrokenFixture, Fault};
use palisade_testkit::{Fixture, MemoryFixture, Options, Report, run};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let arguments = palisade_conformance::arguments();
    let broken = Fault::ALL.iter().map(|fault| {
        Trial::test(format!("{fault:?} is red"), || {
            let once = || must_be_red(&report(BrokenFixture::new(*fault), SHORT), fault.caught_by());
            // Some faults come now and then: a case may be lucky, once in a long while.
            once().or_else(|_| once()).or_else(|_| once())
        })
    });
    let sound = Trial::test("the unbroken engine is green", || {
        must_be_green(&report(MemoryFixture::default(), Options::default().case_limit))
    });
    libtest_mimic::run(&arguments, broken.chain([sound]).collect()).exit_code()
}

/// Most faults show as a step that never ends.
const SHORT: Duration = Duration::from_secs(5);

fn report(fixture: impl Fixture, case_limit: Duration) -> Report {
    let options = Options { case_limit, parallel: 64, ..Options::default() };
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("it starts");
    let report = runtime.block_on(run(Arc::new(fixture), options)).expect("memory is always reached");
    // What still hangs is what the fault did.
    runtime.shutdown_background();
    report
}

fn must_be_red(report: &Report, by: &str) -> Result<(), Failed> {
    let names: Vec<_> = report.failed().into_iter().map(|(case, _)| case).collect();
    if !names.contains(&by) {
        return Err(format!("{by} did not notice; these did: {}", names.join(" ")).into());
    }
    println!("{}: {} cases red: {}", report.engine, names.len(), names.join(" "));
    Ok(())
}

fn must_be_green(report: &Report) -> Result<(), Failed> {
    if report.failed().is_empty() { Ok(()) } else { Err(report.to_string().into()) }
}
