//! The `palisade` command: run a command under a lock, elect, inspect, evict, on any engine.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod connect;
mod exit;
mod held;
mod output;
mod process;
mod trial;
mod waiting;
mod watching;

use std::process::ExitCode;

use crate::exit::{Failure, Outcome};

fn main() -> ExitCode {
    // The helpers that `run` starts are this same program; they must be up in no time, so they
    // branch off before anything else happens.
    if let Some(code) = process::helper() {
        return ExitCode::from(code);
    }
    let outcome = args::parse().and_then(run);
    ExitCode::from(outcome.unwrap_or_else(Failure::report))
}

/// One thread is enough: everything here waits for something else.
fn run(cli: args::Cli) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|problem| Failure::new(exit::SOFTWARE, format!("cannot start: {problem}")))?;
    let outcome = runtime.block_on(cmd::dispatch(cli));
    // What still runs has nothing to say any more; waiting for it would only make us slow.
    runtime.shutdown_background();
    outcome
}
