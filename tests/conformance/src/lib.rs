//! The suite as `cargo test` prints it: one line per case, `ignored` with its reason where a case
//! does not apply.

pub mod etcd;
pub mod mariadb;
pub mod postgres;
pub mod redis;
pub mod zookeeper;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Trial};
use palisade_testkit::{Fixture, Options, Suite, Verdict};
use tokio::runtime::Runtime;

/// Cases mostly wait, so that more of them run at once than there are processors.
const AT_ONCE: usize = 8;

/// The arguments of `cargo test`, with our own default for how many run at once.
pub fn arguments() -> Arguments {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    arguments
}

/// Runs the suite over one fixture.
///
/// # Panics
/// The engine cannot be reached at all.
pub fn main_for(fixture: impl Fixture, options: Options) -> ExitCode {
    let arguments = arguments();
    let runtime = Arc::new(Runtime::new().expect("the runtime starts"));
    let suite = runtime.block_on(Suite::new(Arc::new(fixture), options)).expect("the engine is reached");
    let suite = Arc::new(suite);
    let cases = suite.cases();
    if !arguments.list {
        // Before the run, so that the last line is the result, as `cargo test` has it.
        for (case, why) in cases.iter().filter_map(|case| Some((case, suite.not_applicable(case)?))) {
            println!("not applicable: {}: {why}", case.name);
        }
    }
    let trials = cases.into_iter().map(|case| {
        let (suite, runtime) = (Arc::clone(&suite), Arc::clone(&runtime));
        Trial::ignorable_test(case.name.clone(), move || match runtime.block_on(suite.run(&case)).verdict {
            Verdict::Passed => Ok(Completion::Completed),
            Verdict::NotApplicable(why) => Ok(Completion::ignored_with(why)),
            Verdict::Failed(why) => Err(why.into()),
        })
    });
    let code = libtest_mimic::run(&arguments, trials.collect()).exit_code();
    // A case that hangs has failed; it must not keep the program from saying so.
    std::mem::forget(runtime);
    code
}
