//! The suite over three servers of a newer etcd.

use std::process::ExitCode;

use palisade_conformance::etcd::Etcd;
use palisade_conformance::redis::run;
use palisade_testkit::servers::{EtcdOptions, newer_etcd};

fn main() -> ExitCode {
    let program = newer_etcd().expect("a newer etcd is there");
    let options = EtcdOptions { program, ..EtcdOptions::default() };
    run(env!("CARGO_BIN_EXE_palisade-taker"), Etcd::start("etcd*3", 3, options))
}
