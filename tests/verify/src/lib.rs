//! What the tests of `palisade verify` share.

use std::time::Duration;

use libtest_mimic::Failed;
use palisade_testkit::HelperProgram;
use palisade_testkit::verify::{Outcome, Settings, verify};

/// A short run with a short TTL, so that much expires in little time.
///
/// `helper` is the path of this package's own binary, which only its tests are told.
pub fn settings(helper: &str, engine: &str) -> Settings {
    Settings {
        engine: engine.to_owned(),
        registers: None,
        duration: Duration::from_secs(4),
        workloads: Vec::new(),
        faults: None,
        seed: 1,
        ttl: Some(Duration::from_millis(400)),
        report: None,
        helper: HelperProgram { path: helper.into(), arguments: Vec::new() },
        command: String::new(),
        bug: None,
    }
}

/// Carries a run out.
///
/// # Errors
/// If it could not be tried.
pub fn run(settings: &Settings) -> Result<Outcome, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(verify(settings, &|_| {}));
    runtime.shutdown_background();
    outcome.map_err(|problem| format!("{problem:#}").into())
}
