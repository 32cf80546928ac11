//! The suite over the session locks of one MySQL server.

use std::process::ExitCode;

use palisade_conformance::mariadb::MariaDb;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), MariaDb::mysql_advisory())
}
