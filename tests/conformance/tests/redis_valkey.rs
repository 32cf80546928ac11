//! The suite over Valkey 9, the second kind of server that speaks Redis' protocol.

use std::process::ExitCode;

use palisade_conformance::redis::{Single, run, valkey};
use palisade_testkit::servers::{Persistence, RedisOptions};

fn main() -> ExitCode {
    let program = valkey().expect("Valkey is there");
    let options = RedisOptions { program, persistence: Persistence::EveryWrite, ..RedisOptions::default() };
    run(env!("CARGO_BIN_EXE_palisade-taker"), Single::start("redis on Valkey", options))
}
