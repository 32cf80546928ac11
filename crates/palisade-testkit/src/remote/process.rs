use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use super::{ServerOptions, serve};
use crate::bounded::bounded;

/// The server program: `palisade-remote [--listen ADDRESS] [--source NAME] [--epoch N]
/// [--grace MILLISECONDS]`.
///
/// Its first line on the standard output is its address. It ends when its standard input does, so
/// that it cannot outlive whoever started it.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.context("no runtime").and_then(|runtime| {
        let outcome = runtime.block_on(run(arguments));
        // A read of the standard input cannot be cancelled; waiting for it would be for ever.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("palisade-remote: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: impl Iterator<Item = String>) -> Result<()> {
    let (address, options) = parse(arguments)?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let (mut stdin, mut ignored) = (tokio::io::stdin(), [0; 64]);
    let orphaned = async { while let Ok(1..) = stdin.read(&mut ignored).await {} };
    tokio::select! {
        served = serve(listener, options) => Ok(served?),
        () = orphaned => Ok(()),
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(SocketAddr, ServerOptions)> {
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut options = ServerOptions::default();
    while let Some(option) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--listen" => address = value.parse().context("--listen takes an address and a port")?,
            "--source" => options.source = Some(value),
            "--epoch" => options.epoch = value.parse().context("--epoch takes a number")?,
            "--grace" => {
                options.grace = Duration::from_millis(value.parse().context("--grace takes milliseconds")?);
            }
            _ => bail!("there is no option {option}; there are --listen, --source, --epoch and --grace"),
        }
    }
    Ok((address, options))
}

/// A server in a process of its own, to be killed and started again. Killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starting a process takes longer than a step inside one.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts `program`, a command that calls [`main`] with what follows its own arguments; at
    /// `listen`, if that matters.
    ///
    /// # Errors
    /// It cannot be started, or does not say where it listens.
    pub async fn start(
        program: std::process::Command,
        listen: Option<SocketAddr>,
        options: &ServerOptions,
    ) -> Result<Self> {
        let mut command = Command::from(program);
        if let Some(listen) = listen {
            command.args(["--listen", &listen.to_string()]);
        }
        command.args(["--epoch", &options.epoch.to_string()]);
        command.args(["--grace", &options.grace.as_millis().to_string()]);
        if let Some(source) = &options.source {
            command.args(["--source", source]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the server could not be started")?;
        let mut said = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let line = bounded(Self::PATIENCE, "the server's start", said.next_line()).await??;
        let line = line.context("the server ended without a word")?;
        let address = line.parse().with_context(|| format!("the server said {line:?}"))?;
        Ok(Self { child, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process, to be stopped and resumed; `None` once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it (−9) and waits until the kernel has.
    ///
    /// # Errors
    /// It does not die.
    pub async fn kill(mut self) -> Result<()> {
        self.child.start_kill()?;
        bounded(Self::PATIENCE, "the server's death", self.child.wait()).await??;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(SocketAddr, ServerOptions)> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_checked() {
        let (address, options) = parsed("--epoch 3 --source a --grace 250 --listen 127.0.0.1:7").unwrap();
        assert_eq!((address.port(), options.epoch, options.source.as_deref()), (7, 3, Some("a")));
        assert_eq!(options.grace, Duration::from_millis(250));
        for bad in ["--epoch", "--epoch -1", "--epoch x", "--nonsense 1", "--listen here"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
