//! The suite over the session locks of one PostgreSQL server.

use std::process::ExitCode;

use palisade_conformance::postgres::Postgres;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Postgres::advisory())
}
