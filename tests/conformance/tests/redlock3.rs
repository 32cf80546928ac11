//! The suite over a quorum of 3 independent Redis servers.

use std::process::ExitCode;

use palisade_conformance::redis::{Several, run};

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Several::redlock(3))
}
