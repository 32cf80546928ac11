//! The suite over PostgreSQL behind PgBouncer, with a direct way for what is told.

use std::process::ExitCode;

use palisade_conformance::postgres::Postgres;
use palisade_conformance::redis::run;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Postgres::pooled(true))
}
