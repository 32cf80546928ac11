//! The suite over one PostgreSQL server, reached directly.

use std::process::ExitCode;

use palisade_conformance::postgres::Postgres;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Postgres::direct())
}
