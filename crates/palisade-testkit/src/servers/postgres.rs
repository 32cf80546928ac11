mod family;
mod folder;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::Signal;

use self::family::Family;
use self::folder::Folder;
use super::clock::Clock;
use super::newer::newer;
use super::process::{self, Process};
use super::{TlsFiles, ports};
use crate::bounded::bounded;

/// How a server is started.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The folder of its programs, such as `/usr/lib/postgresql/15/bin`.
    pub programs: PathBuf,
    /// Whether what it acknowledges survives a crash of the machine; of the server it always does.
    pub fsync: bool,
    /// Further settings, such as `["max_connections=300"]`.
    pub settings: Vec<String>,
    /// The lines of `pg_hba.conf`, if not everybody is trusted; `postgres` at 127.0.0.1 must stay so.
    pub hba: Option<String>,
    /// Has it offer TLS, on the same port.
    pub tls: Option<TlsFiles>,
    /// Has its wall clock go by [`PostgresServer::shift_clock`]; needs a C compiler.
    pub clock: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            programs: "/usr/lib/postgresql/15/bin".into(),
            fsync: false,
            settings: Vec::new(),
            hba: None,
            tls: None,
            clock: false,
        }
    }
}

impl PostgresOptions {
    /// A server of another version than Debian's.
    ///
    /// # Errors
    /// It is not there.
    pub fn newer() -> Result<Self> {
        Ok(Self { programs: newer_postgres()?, ..Self::default() })
    }
}

/// Where `cargo xtask test` puts the programs of a newer PostgreSQL than Debian's: in `$PALISADE_POSTGRES`, else below
/// the build's folder.
///
/// # Errors
/// They are not there.
pub fn newer_postgres() -> Result<PathBuf> {
    newer("postgres", "usr/lib/postgresql/18/bin", "PALISADE_POSTGRES")
}

/// A PostgreSQL server in processes of its own. Killed when dropped.
///
/// Its superuser is `postgres`, who needs no password from this machine.
#[derive(Debug)]
pub struct PostgresServer {
    options: PostgresOptions,
    /// `None` while it is killed. Declared before the folder, which must outlive it.
    process: Mutex<Option<Family>>,
    clock: Option<Clock>,
    port: u16,
    folder: Folder,
}

impl PostgresServer {
    /// Far longer than a start takes, also one that recovers.
    const PATIENCE: Duration = Duration::from_mins(1);
    /// Another program may take a port between our look and the server's.
    const TRIES: usize = 5;

    /// Makes a new cluster, starts a server for it at a free port, and waits until it answers.
    ///
    /// # Errors
    /// The programs are missing, or the server does not come up; with the end of its log.
    pub async fn start(options: PostgresOptions) -> Result<Self> {
        let program = options.programs.join("postgres");
        ensure!(program.is_file(), "{} is missing: apt-get install postgresql-15", program.display());
        for _ in 1..Self::TRIES {
            let server = Self::prepare(options.clone()).await?;
            match server.run().await {
                Err(_) if server.log().contains("Address already in use") => {}
                started => return started.map(|()| server),
            }
        }
        let server = Self::prepare(options).await?;
        server.run().await.map(|()| server)
    }

    async fn prepare(options: PostgresOptions) -> Result<Self> {
        let folder = Folder::new()?;
        folder.make_cluster(&options).await?;
        let clock = options.clock.then(|| Clock::new(folder.path())).transpose()?;
        Ok(Self { options, process: Mutex::new(None), clock, port: ports::free()?, folder })
    }

    /// Starts it again at the same address, with what its disk holds; as a new cluster if `wiped`.
    ///
    /// # Errors
    /// As [`PostgresServer::start`]; or it runs.
    pub async fn start_again(&self, wiped: bool) -> Result<()> {
        ensure!(self.pid().is_none(), "{} runs already", self.called());
        if wiped {
            self.folder.wipe()?;
            self.folder.make_cluster(&self.options).await?;
        }
        self.run().await
    }

    async fn run(&self) -> Result<()> {
        // It would ask whether the process in there still lives; a recycled id would keep it from starting.
        self.folder.forget_the_last_process()?;
        let mut command = self.folder.command(&self.options.programs.join("postgres"));
        command.args(self.args());
        if let Some(clock) = &self.clock {
            clock.put_on(&mut command);
        }
        let log = File::options().create(true).append(true).open(self.folder.log())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(command).await?;
        *self.process.lock() = Some(Family::new(process));
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
        let mut settings = vec![
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            // A socket's lock would keep a killed server from coming back until its processes are reaped.
            "unix_socket_directories=".to_owned(),
            format!("fsync={}", if self.options.fsync { "on" } else { "off" }),
            format!("full_page_writes={}", if self.options.fsync { "on" } else { "off" }),
            "shared_buffers=32MB".to_owned(),
            "max_connections=600".to_owned(),
            "autovacuum_naptime=10s".to_owned(),
        ];
        if self.options.tls.is_some() {
            settings
                .extend(["ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key"].map(Into::into));
        }
        settings.extend(self.options.settings.iter().cloned());
        let mut args = vec!["-D".to_owned(), self.folder.data().display().to_string()];
        args.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
        args
    }

    /// Waits until our own server answers at our port, with its data recovered.
    async fn ready(&self) -> Result<()> {
        let data = self.folder.data().display().to_string();
        loop {
            if let Some(status) =
                self.process.lock().as_mut().context("it was killed while it started")?.ended()?
            {
                bail!("it ended with {status}");
            }
            // Whatever goes wrong here is that it is not ready yet: refused, or still recovering.
            if self.psql("SHOW data_directory").await.is_ok_and(|said| said.trim() == data) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Has the superuser run statements, and returns what they print: a row per line, columns apart by `|`.
    ///
    /// # Errors
    /// It cannot be reached, or one of them fails.
    pub async fn psql(&self, statements: &str) -> Result<String> {
        let mut command = tokio::process::Command::new(self.options.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres"]);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-c", statements]);
        command.env("PGCONNECT_TIMEOUT", "5").stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.context("psql could not be started")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of its database `postgres` for its superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Its first process; `None` while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.process.lock().as_ref().map(Family::id)
    }

    /// Kills it with all its processes (kill −9), and waits until they are dead. What is dead stays so.
    ///
    /// # Errors
    /// It does not die.
    pub async fn kill(&self) -> Result<()> {
        let process = self.process.lock().take();
        match process {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Has it end in an orderly way without waiting for its clients (SIGINT), and waits for that.
    ///
    /// # Errors
    /// It does not end.
    pub async fn terminate(&self) -> Result<()> {
        let process = self.process.lock().take();
        match process {
            Some(process) => process.end(Signal::INT).await,
            None => Ok(()),
        }
    }

    /// Stops all its processes (SIGSTOP): it keeps its connections, and answers nobody.
    ///
    /// # Errors
    /// It does not run.
    pub fn stop(&self) -> Result<()> {
        self.with_process(Family::stop)
    }

    /// Lets it go on after [`PostgresServer::stop`].
    ///
    /// # Errors
    /// It does not run.
    pub fn go_on(&self) -> Result<()> {
        self.with_process(Family::go_on)
    }

    fn with_process(&self, act: impl FnOnce(&Family) -> Result<()>) -> Result<()> {
        act(self.process.lock().as_ref().with_context(|| format!("{} does not run", self.called()))?)
    }

    /// Sets its wall clock so many seconds ahead of the true time, or behind it.
    ///
    /// # Errors
    /// It was started without [`PostgresOptions::clock`].
    pub fn shift_clock(&self, seconds: i64) -> Result<()> {
        let clock = self.clock.as_ref();
        clock.with_context(|| format!("{} was started with the true clock", self.called()))?.shift(seconds)
    }

    /// What to call it.
    pub fn called(&self) -> String {
        format!("postgres {}", self.address())
    }

    /// The folder of its data, for tools such as `pg_basebackup`.
    pub fn data(&self) -> PathBuf {
        self.folder.data()
    }

    /// A command that runs `program` as the user whose files the server's are.
    pub fn command(&self, program: &Path) -> Command {
        self.folder.command(program)
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.folder.log()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn log_end(&self) -> String {
        process::end_of(&self.log())
    }
}
