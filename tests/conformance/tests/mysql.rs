//! The suite over one MySQL server: waiting polls.

use std::process::ExitCode;

use palisade_conformance::mariadb::MariaDb;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), MariaDb::mysql())
}
