//! The suite over the memory engine, which is the contract's executable form.

use std::process::ExitCode;

use palisade_conformance::main_for;
use palisade_testkit::{MemoryFixture, Options};

fn main() -> ExitCode {
    main_for(MemoryFixture::default(), Options::default())
}
