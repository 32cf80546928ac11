use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// A lock client and how its program is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) name: String,
    command: Vec<String>,
}

impl Client {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, command) = text.split_once('=').ok_or("NAME=COMMAND is meant")?;
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if name.is_empty() || command.is_empty() {
            return Err("a name and a command are meant".to_owned());
        }
        Ok(Self { name: name.to_owned(), command })
    }

    /// This program as a client that locks as `lock` says.
    pub(crate) fn of_our_own(lock: &str) -> Result<Self> {
        let program = std::env::current_exe()?;
        let program = program.to_str().context("this program's path is not UTF-8")?;
        let command = [program, "client", lock].map(str::to_owned).to_vec();
        Ok(Self { name: lock.to_owned(), command })
    }

    /// Starts a process and waits until it is ready.
    pub(crate) async fn start(&self, port: u16, key: &str, task: &[&str]) -> Result<Worker> {
        let mut worker = self.spawn(port, key, task)?;
        let line = worker.line().await?;
        ensure!(line == "ready", "{} said {line:?} instead of being ready", self.name);
        Ok(worker)
    }

    /// Asks once for the lock and returns what the client said.
    pub(crate) async fn attempt(&self, port: u16, key: &str) -> Result<String> {
        let mut worker = self.spawn(port, key, &["attempt"])?;
        let line = worker.line().await?;
        worker.ended().await?;
        Ok(line)
    }

    fn spawn(&self, port: u16, key: &str, task: &[&str]) -> Result<Worker> {
        let mut process = Command::new(&self.command[0])
            .args(&self.command[1..])
            .args([&port.to_string(), key])
            .args(task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be started", self.command.join(" ")))?;
        let input = process.stdin.take().context("no standard input")?;
        let output = process.stdout.take().context("no standard output")?;
        let name = self.name.clone();
        Ok(Worker { name, process, input, output: BufReader::new(output).lines() })
    }
}

/// A process that contends; ended with this value.
#[derive(Debug)]
pub(crate) struct Worker {
    name: String,
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// What a process says of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) turns: u32,
    /// How often somebody else was inside.
    pub(crate) overlaps: u32,
    pub(crate) max_wait: Duration,
}

impl Worker {
    /// Far above what any step takes; a client that hangs must not hang the run.
    const LIMIT: Duration = Duration::from_mins(2);

    /// Lets the process go on.
    pub(crate) async fn go(&mut self) -> Result<()> {
        self.input.write_all(b"go\n").await?;
        Ok(self.input.flush().await?)
    }

    /// The next line it prints.
    pub(crate) async fn line(&mut self) -> Result<String> {
        let line = timeout(Self::LIMIT, self.output.next_line()).await;
        let line = line.map_err(|_| anyhow!("{} hangs", self.name))??;
        line.with_context(|| format!("{} ended without a word; its errors are above", self.name))
    }

    /// Waits until its turns are over.
    pub(crate) async fn outcome(mut self) -> Result<Outcome> {
        let line = self.line().await?;
        let outcome = Outcome::parse(&line).with_context(|| format!("{} said {line:?}", self.name))?;
        self.ended().await?;
        Ok(outcome)
    }

    /// Gives the lock back, and tells when on the machine's monotonic clock.
    pub(crate) async fn release(mut self) -> Result<Duration> {
        self.go().await?;
        let line = self.line().await?;
        let at = line.strip_prefix("released_ns=").and_then(|at| at.parse().ok());
        self.ended().await?;
        at.map(Duration::from_nanos).with_context(|| format!("{} said {line:?}", self.name))
    }

    /// Kills the process as nothing can be caught.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }

    async fn ended(&mut self) -> Result<()> {
        let status = timeout(Self::LIMIT, self.process.wait()).await;
        let status = status.map_err(|_| anyhow!("{} does not end", self.name))??;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }
}

impl Outcome {
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let number = |word: Option<&str>, name: &str| -> Result<u64> {
            let value = word.and_then(|word| word.strip_prefix(name)?.strip_prefix('='));
            Ok(value.with_context(|| format!("{name}=N is missing"))?.parse()?)
        };
        let mut words = line.split_whitespace();
        let outcome = Self {
            turns: number(words.next(), "turns")?.try_into()?,
            overlaps: number(words.next(), "overlaps")?.try_into()?,
            max_wait: Duration::from_micros(number(words.next(), "max_wait_us")?),
        };
        match words.next() {
            None => Ok(outcome),
            Some(more) => bail!("{more:?} is too much"),
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { turns, overlaps, max_wait } = self;
        write!(f, "turns={turns} overlaps={overlaps} max_wait_us={}", max_wait.as_micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_read_as_it_is_written() {
        let outcome = Outcome { turns: 500, overlaps: 1, max_wait: Duration::from_micros(1234) };
        assert_eq!(outcome.to_string(), "turns=500 overlaps=1 max_wait_us=1234");
        assert_eq!(Outcome::parse(&outcome.to_string()).unwrap(), outcome);
        for bad in
            ["", "turns=1", "turns=x overlaps=0 max_wait_us=1", "turns=1 overlaps=0 max_wait_us=1 more"]
        {
            assert!(Outcome::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_client_is_a_name_and_a_command() {
        let client = Client::parse("redis-py=python client.py").unwrap();
        assert_eq!((client.name.as_str(), client.command.len()), ("redis-py", 2));
        assert!(Client::parse("redis-py").is_err() && Client::parse("redis-py=").is_err());
    }
}
