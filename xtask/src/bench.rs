use std::process::Command;

use anyhow::{Result, ensure};

use crate::interop::clients::{Prepared, curator_times, etcd_times};
use crate::steps::cargo;

/// The page that a whole run writes.
const PAGE: &str = "docs/benchmarks.md";

/// Runs the benchmarks in release mode, of every engine that can be started here unless one is named. Without
/// `args` all of them: goals that are missed fail it, and the page is written anew; else `args` are those of
/// `palisade bench`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let built = cargo(&["build", "--release", "--package", "palisade-cli"]).status()?;
    ensure!(built.success(), "the command could not be built: {built}");
    let mut bench = Command::new("target/release/palisade");
    bench.arg("bench");
    if !args.iter().any(|arg| arg.starts_with("-e") || arg.starts_with("--engine")) {
        bench.arg("--all");
    }
    if args.is_empty() {
        bench.args(["--goals", "--write", PAGE]);
    }
    match etcd_times() {
        Ok(Prepared::Ready(program)) => drop(bench.env("PALISADE_ETCD_GO", std::path::absolute(program)?)),
        Ok(Prepared::LeftOut(why)) => println!("not beside Go's locks on etcd: {why}"),
        Err(error) => println!("not beside Go's locks on etcd: {error:#}"),
    }
    match curator_times() {
        Ok(Prepared::Ready(command)) => drop(bench.env("PALISADE_ZOOKEEPER_CURATOR", command)),
        Ok(Prepared::LeftOut(why)) => println!("not beside Curator on ZooKeeper: {why}"),
        Err(error) => println!("not beside Curator on ZooKeeper: {error:#}"),
    }
    let status = bench.args(args).status()?;
    ensure!(status.success(), "the benchmarks failed: {status}");
    Ok(())
}
