use anyhow::{Result, ensure};

use crate::steps::cargo;

/// Runs the benchmarks in release mode; `args` are theirs.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let status = cargo(&["run", "--release", "--package", "palisade-benches", "--"]).args(args).status()?;
    ensure!(status.success(), "the benchmarks failed: {status}");
    Ok(())
}
