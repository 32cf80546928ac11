use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use palisade_core::Token;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::Event;
use crate::Context;
use crate::context::bounded;

/// A running taker, from the suite's side. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Taker {
    child: Child,
    commands: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
    patience: Duration,
}

impl Taker {
    /// Starts a taker of `name` and waits until it is connected.
    pub(crate) async fn start(context: &Context, name: &str, ttl: Duration) -> Result<Self> {
        let program = context.taker.as_ref().context("no taker program was given")?;
        let mut child = Command::new(program)
            .args([&context.url()?, name, context.way.name(), &ttl.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be started", program.display()))?;
        let commands = child.stdin.take().context("no standard input")?;
        let events = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        // Starting a process takes longer than a step inside one.
        let mut taker = Self { child, commands, events, patience: context.patience() * 2 };
        ensure!(taker.next().await? == Event::Ready, "the taker did not become ready");
        Ok(taker)
    }

    /// Starts a taker that holds the lock.
    pub(crate) async fn holding(context: &Context, name: &str, ttl: Duration) -> Result<(Self, Token)> {
        let mut taker = Self::start(context, name, ttl).await?;
        taker.tell("acquire").await?;
        let token = taker.granted().await?;
        Ok((taker, token))
    }

    pub(crate) async fn tell(&mut self, command: &str) -> Result<()> {
        Ok(self.commands.write_all(format!("{command}\n").as_bytes()).await?)
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> Result<Event> {
        let line = bounded(self.patience, "the taker's answer", self.events.next_line()).await??;
        let line = line.context("the taker ended without a word")?;
        match serde_json::from_str(&line).with_context(|| format!("the taker said {line:?}"))? {
            Event::Failed { error } => bail!("the taker failed: {error}"),
            event => Ok(event),
        }
    }

    /// The next event that is not about waiting.
    pub(crate) async fn answer(&mut self) -> Result<Event> {
        loop {
            match self.next().await? {
                Event::Waiting => {}
                event => return Ok(event),
            }
        }
    }

    /// Its next grant's token.
    pub(crate) async fn granted(&mut self) -> Result<Token> {
        let event = self.answer().await?;
        event.token().with_context(|| format!("a grant was expected, not {event:?}"))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(kill_process(pid.context("the taker has ended")?, signal)?)
    }

    /// Kills it (−9) and waits until the kernel has.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        bounded(self.patience, "the taker's death", self.child.wait()).await??;
        Ok(())
    }

    /// Stops it where it is, until [`Taker::resume`].
    pub(crate) fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub(crate) async fn terminate(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = bounded(self.patience, "the taker's end", self.child.wait()).await??;
        ensure!(status.success(), "the taker ended with {status}");
        Ok(())
    }
}
