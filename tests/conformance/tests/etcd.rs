//! The suite over Debian's etcd, one server.

use std::process::ExitCode;

use palisade_conformance::etcd::Etcd;
use palisade_conformance::redis::run;
use palisade_testkit::servers::EtcdOptions;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), Etcd::start("etcd", 1, EtcdOptions::default()))
}
