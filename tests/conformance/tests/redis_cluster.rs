//! The suite over a Cluster of three masters.

use std::process::ExitCode;

use palisade_conformance::redis::{Several, run};

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Several::cluster())
}
