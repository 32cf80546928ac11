//! The suite over one PostgreSQL server whose holders have ShedLock's rows, too.

use std::process::ExitCode;

use palisade_conformance::postgres::Shedlock;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Shedlock::start())
}
