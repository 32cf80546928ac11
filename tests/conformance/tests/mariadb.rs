//! The suite over one MariaDB server: waiting polls.

use std::process::ExitCode;

use palisade_conformance::mariadb::MariaDb;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), MariaDb::start())
}
