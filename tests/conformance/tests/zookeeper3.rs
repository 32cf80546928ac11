//! The suite over three servers of a newer ZooKeeper than Debian's stable one.

use std::process::ExitCode;

use palisade_conformance::redis::run;
use palisade_conformance::zookeeper::ZooKeeper;
use palisade_testkit::servers::{ZooKeeperOptions, newer_zookeeper};

fn main() -> ExitCode {
    let classes = newer_zookeeper().expect("a newer ZooKeeper is there");
    let options = ZooKeeperOptions { classes, ..ZooKeeperOptions::default() };
    run(env!("CARGO_BIN_EXE_palisade-taker"), ZooKeeper::start("zk*3", 3, options))
}
