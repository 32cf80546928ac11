use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::process::Command;

use crate::stats::Spread;

/// A lock of others on the same engine, measured in the same run: a program of its own.
///
/// `PROGRAM … pairs NAME COUNT` takes and releases a lock so often, and prints how many microseconds each time
/// took; `PROGRAM … crowd NAME SIZE TURNS` lets so many clients do so at once, each so often, and prints how many
/// times per second the lock was had.
#[derive(Debug, Clone)]
pub struct Peer {
    /// What to call it.
    pub name: &'static str,
    /// The program, and its first arguments.
    pub program: Vec<OsString>,
}

/// What was found of a [`Peer`], beside a row of ours.
#[derive(Debug, Clone, Serialize)]
pub struct PeerFigures {
    /// Whose lock it is.
    pub name: &'static str,
    /// Half of all its operations took no longer.
    pub p50_us: Option<f64>,
    /// How many it does per second, of the median round.
    pub per_second: Option<f64>,
    /// Our figure over its own in the same round.
    pub ratio: Spread,
}

impl Peer {
    /// The times of so many operations, in microseconds.
    pub(crate) async fn pairs(&self, name: &str, count: usize) -> Result<Vec<f64>> {
        let times = self.figures(&["pairs", name, &count.to_string()]).await?;
        ensure!(times.len() == count, "{} told {} times, not {count}", self.name, times.len());
        Ok(times)
    }

    /// How often per second a crowd has the lock.
    pub(crate) async fn crowd(&self, name: &str, size: usize, turns: usize) -> Result<f64> {
        let figures = self.figures(&["crowd", name, &size.to_string(), &turns.to_string()]).await?;
        figures.first().copied().with_context(|| format!("{} told nothing", self.name))
    }

    async fn figures(&self, args: &[&str]) -> Result<Vec<f64>> {
        const LIMIT: Duration = Duration::from_mins(1);
        let (program, first) = self.program.split_first().context("a peer is a program")?;
        let mut command = Command::new(program);
        command.args(first).args(args).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(LIMIT, command.output()).await;
        let output = output.with_context(|| format!("{} does not end", self.name))??;
        let problem = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {problem}", self.name);
        let text = String::from_utf8(output.stdout)?;
        text.split_whitespace().map(|figure| Ok(figure.parse()?)).collect()
    }
}
