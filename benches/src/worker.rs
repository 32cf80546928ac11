use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use palisade::{Clock, SystemClock};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// The first argument that makes this program a worker of a bench instead of the bench.
pub(crate) const ROLE: &str = "--worker";

/// Another process that takes one lock a number of times and reports when.
pub(crate) struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a worker that takes `bench` at `url` `times` times and holds the last one if told.
    pub(crate) fn start(url: &str, times: usize, keep: bool) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ROLE, url, &times.to_string(), &keep.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().context("a worker's stdout is piped")?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    /// The boot-clock time of its next grant, in nanoseconds; `None` when it is done.
    pub(crate) async fn next_grant(&mut self) -> Result<Option<u64>> {
        match self.lines.next_line().await?.as_deref() {
            None | Some("done") => Ok(None),
            Some(line) => Ok(Some(line.parse()?)),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.child.start_kill()?)
    }

    pub(crate) async fn finish(mut self) -> Result<()> {
        let status = self.child.wait().await?;
        if !status.success() {
            bail!("a worker failed: {status}");
        }
        Ok(())
    }
}

pub(crate) async fn main(arguments: &[String]) -> Result<()> {
    let [url, times, keep] = arguments else { bail!("a worker needs url, times, keep") };
    let client = palisade::connect(url).await?;
    let mutex = client.mutex("bench")?;
    let times: usize = times.parse()?;
    let mut out = std::io::stdout();
    for time in 1..=times {
        let guard = mutex.acquire().await?;
        writeln!(out, "{}", SystemClock.now().as_nanos())?;
        out.flush()?;
        if time == times && keep == "true" {
            std::future::pending::<()>().await;
        }
        guard.release().await?;
    }
    writeln!(out, "done")?;
    client.close().await;
    Ok(())
}
