use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::Signal;
use tempfile::TempDir;

use super::clock::Clock;
use super::ports;
use super::process::{self, Place, Process};
use super::resp::{Reply, ask};
use crate::bounded::{bounded, eventually};

/// How a server is started.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// The program: `redis-server`, or another one that takes the same options.
    pub program: PathBuf,
    /// What outlives the process.
    pub persistence: Persistence,
    /// Further options, such as `["--maxmemory-policy", "allkeys-lru"]`.
    pub args: Vec<String>,
    /// The user and the password by which the server is looked after, if it asks for them.
    pub login: Option<(String, String)>,
    /// Has it listen with TLS on a second port.
    pub tls: Option<TlsFiles>,
    /// Has its wall clock go by [`RedisServer::shift_clock`]; needs a C compiler.
    pub clock: bool,
    /// For how long it says that it has been up when it is first started; needs [`Self::clock`].
    /// Nothing was granted before the first start, so there is nothing it could have forgotten.
    pub up_for: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            program: "redis-server".into(),
            persistence: Persistence::None,
            args: Vec::new(),
            login: None,
            tls: None,
            clock: false,
            up_for: Duration::ZERO,
        }
    }
}

/// What of a server outlives its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    None,
    /// Every write that was acknowledged (`appendfsync always`).
    EveryWrite,
}

/// The files of a server's TLS, in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Its certificate.
    pub cert: PathBuf,
    /// The key of its certificate.
    pub key: PathBuf,
    /// Whom it trusts.
    pub ca: PathBuf,
}

/// A server of Redis' kind in a process of its own. Killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    /// The rest of the configuration, if it is a Sentinel.
    sentinel: Option<String>,
    /// `None` while it is killed. Declared before the folder, which must outlive it.
    process: Place,
    clock: Option<Clock>,
    port: u16,
    tls_port: Option<u16>,
    folder: TempDir,
}

impl RedisServer {
    /// Far longer than a start takes.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// Another program may take a port between our look and the server's.
    const TRIES: usize = 5;

    /// Starts a server at a free port, and waits until it answers.
    ///
    /// # Errors
    /// The program is missing, or does not come up; with the end of its log.
    pub async fn start(options: RedisOptions) -> Result<Self> {
        Self::start_as(options, None).await
    }

    /// Starts a server; a Sentinel if the rest of its configuration is given.
    pub(super) async fn start_as(options: RedisOptions, sentinel: Option<String>) -> Result<Self> {
        ensure!(
            is_there(&options.program),
            "{} is missing: apt-get install redis-server",
            options.program.display()
        );
        for _ in 1..Self::TRIES {
            let server = Self::prepare(options.clone(), sentinel.clone())?;
            match server.first_start().await {
                Err(_) if server.log().contains("Address already in use") => {}
                started => return started.map(|()| server),
            }
        }
        let server = Self::prepare(options, sentinel)?;
        server.first_start().await.map(|()| server)
    }

    fn prepare(options: RedisOptions, sentinel: Option<String>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("palisade-redis").tempdir()?;
        fs::create_dir(folder.path().join("data"))?;
        let clock = options.clock.then(|| Clock::new(folder.path())).transpose()?;
        let port = ports::free()?;
        let tls_port = options.tls.is_some().then(ports::free).transpose()?;
        let server = Self { options, sentinel, process: Mutex::new(None), clock, port, tls_port, folder };
        if let Some(rest) = &server.sentinel {
            let data = server.data();
            let text = format!("port {port}\nbind 127.0.0.1\ndir {}\n{rest}", data.display());
            fs::write(server.sentinel_file(), text)?;
        }
        Ok(server)
    }

    async fn first_start(&self) -> Result<()> {
        if let Some(clock) = &self.clock {
            clock.shift(-i64::try_from(self.options.up_for.as_secs())?)?;
        }
        self.run().await?;
        self.clock.as_ref().map_or(Ok(()), |clock| clock.shift(0))
    }

    /// Starts it again at the same address, with what its disk holds; with nothing if `wiped`.
    ///
    /// # Errors
    /// As [`RedisServer::start`]; or it runs.
    pub async fn start_again(&self, wiped: bool) -> Result<()> {
        ensure!(self.pid().is_none(), "{} runs already", self.called());
        if wiped {
            fs::remove_dir_all(self.data())?;
            fs::create_dir(self.data())?;
        }
        self.run().await
    }

    async fn run(&self) -> Result<()> {
        let mut command = Process::command(&self.options.program);
        command.args(self.args());
        if let Some(clock) = &self.clock {
            clock.put_on(&mut command);
        }
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(command).await?;
        *self.process.lock() = Some(process);
        let ready =
            bounded(Self::PATIENCE, "the start of a server", self.ready()).await.and_then(|ready| ready);
        if ready.is_err() {
            self.process.lock().take();
        }
        ready.with_context(|| {
            format!("{} did not come up; its log ends with\n{}", self.called(), self.log_end())
        })
    }

    fn args(&self) -> Vec<String> {
        if self.sentinel.is_some() {
            let mut args = vec![self.sentinel_file().display().to_string(), "--sentinel".to_owned()];
            args.extend(self.options.args.iter().cloned());
            return args;
        }
        let (port, data) = (self.port.to_string(), self.data().display().to_string());
        let mut args: Vec<&str> =
            vec!["--port", &port, "--bind", "127.0.0.1", "--dir", &data, "--daemonize", "no", "--save", ""];
        args.extend(match self.options.persistence {
            Persistence::None => &["--appendonly", "no"][..],
            // A rewrite would only add load at moments of its own choice.
            Persistence::EveryWrite => {
                &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
            }
        });
        let mut args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        if let (Some(tls), Some(port)) = (&self.options.tls, self.tls_port) {
            args.extend(["--tls-port".to_owned(), port.to_string()]);
            let files = [("cert", &tls.cert), ("key", &tls.key), ("ca-cert", &tls.ca)];
            for (name, path) in files {
                args.extend([format!("--tls-{name}-file"), path.display().to_string()]);
            }
            args.extend(["--tls-auth-clients", "no"].map(str::to_owned));
        }
        args.extend(self.options.args.iter().cloned());
        args
    }

    /// Waits until our own process answers at our port, with its data loaded.
    async fn ready(&self) -> Result<()> {
        loop {
            let pid = {
                let mut process = self.process.lock();
                let process = process.as_mut().context("it was killed while it started")?;
                if let Some(status) = process.ended()? {
                    bail!("it ended with {status}");
                }
                process.id().to_string()
            };
            // Whatever goes wrong here is that it is not ready yet: refused, or still loading.
            if let Ok(info) = self.ask(&["INFO", "server"]).await
                && info.field("process_id") == Some(&*pid)
                && self.ask(&["PING"]).await.is_ok()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Where it listens without TLS.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Where it listens with TLS, if it does.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, self.tls_port?).into())
    }

    /// Its process; `None` while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.process.lock().as_ref().map(Process::id)
    }

    /// Asks it one thing, over a connection of its own.
    ///
    /// # Errors
    /// It cannot be reached, answers with an error, or not in time.
    pub async fn ask(&self, command: &[&str]) -> Result<Reply> {
        ask(self.address(), self.options.login.as_ref(), command).await
    }

    /// Waits until it says that it has been up for so long.
    ///
    /// # Errors
    /// It does not say so in that time and a bit more.
    pub async fn up_for(&self, wanted: Duration) -> Result<()> {
        eventually(wanted + Self::PATIENCE, "the age of a server", async || {
            let info = self.ask(&["INFO", "server"]).await?;
            let age: u64 = info.field("uptime_in_seconds").unwrap_or_default().parse()?;
            Ok((Duration::from_secs(age) >= wanted).then_some(()))
        })
        .await
    }

    /// Kills it (kill −9), and waits until it is dead. What is dead already stays so.
    ///
    /// # Errors
    /// It does not die.
    pub async fn kill(&self) -> Result<()> {
        self.end(Signal::KILL).await
    }

    /// Has it end in an orderly way (SIGTERM), and waits for that.
    ///
    /// # Errors
    /// It does not end.
    pub async fn terminate(&self) -> Result<()> {
        self.end(Signal::TERM).await
    }

    async fn end(&self, signal: Signal) -> Result<()> {
        process::end(&self.process, signal).await
    }

    /// Stops it (SIGSTOP): it keeps its connections, and answers nobody.
    ///
    /// # Errors
    /// It does not run.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`RedisServer::stop`].
    ///
    /// # Errors
    /// It does not run.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        process::send(&self.process, signal, &self.called())
    }

    /// Sets its wall clock so many seconds ahead of the true time, or behind it.
    ///
    /// # Errors
    /// It was started without [`RedisOptions::clock`].
    pub fn shift_clock(&self, seconds: i64) -> Result<()> {
        let clock = self.clock.as_ref();
        clock.with_context(|| format!("{} was started with the true clock", self.called()))?.shift(seconds)
    }

    /// Whether [`RedisServer::shift_clock`] works.
    pub fn has_own_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// What to call it.
    pub fn called(&self) -> String {
        let program = self.options.program.file_name().unwrap_or_default();
        let kind = if self.sentinel.is_some() { "sentinel" } else { &*program.to_string_lossy() };
        format!("{kind} {}", self.address())
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        let log = fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn log_end(&self) -> String {
        process::end_of(&self.log())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn sentinel_file(&self) -> PathBuf {
        self.folder.path().join("sentinel.conf")
    }
}

fn is_there(program: &Path) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // A path with a folder in it is joined as it is.
    program.is_file() || env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
