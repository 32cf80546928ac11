//! The suite over PostgreSQL behind PgBouncer and nothing else: waiting polls.

use std::process::ExitCode;

use palisade_conformance::postgres::Postgres;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Postgres::pooled(false))
}
