//! The suite over one Redis server that keeps every acknowledged write.

use std::process::ExitCode;

use palisade_conformance::redis::{Single, run};
use palisade_testkit::servers::{Persistence, RedisOptions};

fn main() -> ExitCode {
    let options = RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() };
    run(env!("CARGO_BIN_EXE_palisade-taker"), Single::start("redis", options))
}
