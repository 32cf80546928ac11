//! The suite over Debian's ZooKeeper, one server.

use std::process::ExitCode;

use palisade_conformance::redis::run;
use palisade_conformance::zookeeper::ZooKeeper;
use palisade_testkit::servers::ZooKeeperOptions;

fn main() -> ExitCode {
    run(env!("CARGO_BIN_EXE_palisade-taker"), ZooKeeper::start("zk", 1, ZooKeeperOptions::default()))
}
