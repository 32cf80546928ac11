//! The suite over one MariaDB server whose holders have ShedLock's rows, too.

use std::process::ExitCode;

use palisade_conformance::mariadb::Shedlock;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Shedlock::start())
}
