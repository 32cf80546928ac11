use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::Signal;
use tempfile::TempDir;

use super::clock::Clock;
use super::newer::newer;
use super::ports;
use super::process::{self, Place, Process};
use crate::bounded::bounded;

/// How a server is started.
#[derive(Debug, Clone)]
pub struct MariaDbOptions {
    /// The server's program.
    pub program: PathBuf,
    /// Whether it is MySQL's, whose data is made in another way.
    pub mysql: bool,
    /// Whether what it acknowledges survives a crash of the machine; of the server it always does.
    pub fsync: bool,
    /// Further options, such as `["--max-connections=600"]`.
    pub args: Vec<String>,
    /// Has its wall clock go by [`MariaDbServer::shift_clock`]; needs a C compiler.
    pub clock: bool,
}

impl Default for MariaDbOptions {
    fn default() -> Self {
        Self {
            program: "/usr/sbin/mariadbd".into(),
            mysql: false,
            fsync: false,
            args: Vec::new(),
            clock: false,
        }
    }
}

impl MariaDbOptions {
    /// A server of MySQL.
    ///
    /// # Errors
    /// It is not there.
    pub fn mysql() -> Result<Self> {
        Ok(Self { program: newer_mysql()?, mysql: true, ..Self::default() })
    }
}

/// Where `cargo xtask test` puts MySQL, which Debian's stable release does not have: in `$PALISADE_MYSQL`, else below the
/// build's folder.
///
/// # Errors
/// It is not there.
pub fn newer_mysql() -> Result<PathBuf> {
    newer("mysql", "usr/sbin/mysqld", "PALISADE_MYSQL")
}

/// What MySQL runs at every start.
const FIRST: &str = "\
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS palisade;
";

/// A MariaDB server, or one of MySQL, in a process of its own. Killed when dropped.
///
/// Its superuser is `root`, who needs no password from this machine; it begins with one database, `palisade`.
#[derive(Debug)]
pub struct MariaDbServer {
    options: MariaDbOptions,
    /// `None` while it is killed. Declared before the folder, which must outlive it.
    process: Place,
    clock: Option<Clock>,
    port: u16,
    folder: TempDir,
}

impl MariaDbServer {
    /// Far longer than a start takes, also one that recovers.
    const PATIENCE: Duration = Duration::from_mins(1);
    /// Another program may take a port between our look and the server's.
    const TRIES: usize = 5;

    /// Makes a new data folder, starts a server for it at a free port, and waits until it answers.
    ///
    /// # Errors
    /// The programs are missing, or the server does not come up; with the end of its log.
    pub async fn start(options: MariaDbOptions) -> Result<Self> {
        let program = options.program.display();
        ensure!(
            options.program.is_file(),
            "{program} is missing: apt-get install mariadb-server-core mariadb-client-core"
        );
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

    async fn prepare(options: MariaDbOptions) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("palisade-mariadb").tempdir()?;
        let clock = options.clock.then(|| Clock::new(folder.path())).transpose()?;
        let server = Self { options, process: Mutex::new(None), clock, port: ports::free()?, folder };
        server.make_data().await?;
        Ok(server)
    }

    async fn make_data(&self) -> Result<()> {
        let data = format!("--datadir={}", self.data().display());
        let mut command = if self.options.mysql {
            // Whom it lets in from where is said when it starts: without names, this machine is not `localhost`.
            fs::write(self.folder.path().join("first.sql"), FIRST)?;
            let mut command = tokio::process::Command::new(&self.options.program);
            command.args(["--no-defaults", "--initialize-insecure", "--user=root", &data]);
            command.args(["--innodb-buffer-pool-size=32M", "--innodb-redo-log-capacity=8M"]);
            command
        } else {
            let mut command = tokio::process::Command::new("mariadb-install-db");
            command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--user=root"]);
            command.args(["--skip-test-db", "--skip-name-resolve", &data]);
            command
        };
        // Servers that start in the same folder for temporary files remove each other's.
        command.env("TMPDIR", self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        let made = bounded(Self::PATIENCE, "making a database's folder", command.output()).await?;
        let made = made.context("what makes a database's folder could not be started")?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "a database's folder could not be made: {}", said.trim());
        if !self.options.mysql {
            fs::create_dir_all(self.data().join("palisade"))?;
        }
        Ok(())
    }

    /// Starts it again at the same address, with what its disk holds; with nothing if `wiped`.
    ///
    /// # Errors
    /// As [`MariaDbServer::start`]; or it runs.
    pub async fn start_again(&self, wiped: bool) -> Result<()> {
        ensure!(self.pid().is_none(), "{} runs already", self.called());
        if wiped {
            fs::remove_dir_all(self.data())?;
            self.make_data().await?;
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
        let folder = self.folder.path().display();
        let mut args = vec![
            // Must come first, or the machine's own settings are read.
            "--no-defaults".to_owned(),
            "--user=root".to_owned(),
            format!("--datadir={}", self.data().display()),
            format!("--port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--socket={folder}/socket"),
            format!("--pid-file={folder}/pid"),
            // Whichever server starts removes what others have in a folder that they share.
            format!("--tmpdir={folder}"),
        ];
        let fixed = ["--skip-name-resolve", "--skip-log-bin", "--performance-schema=OFF"];
        let small = ["--innodb-buffer-pool-size=32M", "--max-connections=300"];
        args.extend(fixed.iter().chain(&small).map(ToString::to_string));
        if self.options.mysql {
            let own = ["--innodb-redo-log-capacity=8M", "--mysqlx=OFF", "--secure-file-priv=NULL"];
            args.extend(own.map(str::to_owned));
            args.push(format!("--init-file={folder}/first.sql"));
        } else {
            args.push("--innodb-log-file-size=8M".to_owned());
        }
        if !self.options.fsync {
            // What was written outlives the process all the same: 2 writes at every commit.
            let fast = ["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"];
            args.extend(fast.map(str::to_owned));
        }
        args.extend(self.options.args.iter().cloned());
        args
    }

    /// Waits until our own server answers at our port, with its data recovered.
    async fn ready(&self) -> Result<()> {
        let data = format!("{}/", self.data().display());
        loop {
            if let Some(status) =
                self.process.lock().as_mut().context("it was killed while it started")?.ended()?
            {
                bail!("it ended with {status}");
            }
            // Whatever goes wrong here is that it is not ready yet: refused, or still recovering.
            if self.sql("SELECT @@datadir").await.is_ok_and(|said| said.trim() == data) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Has the superuser run statements, and returns what they print: a row per line, columns apart by tabs.
    ///
    /// # Errors
    /// It cannot be reached, or one of them fails.
    pub async fn sql(&self, statements: &str) -> Result<String> {
        let mut command = tokio::process::Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--connect-timeout=5"]);
        command.args(["--protocol=tcp", "--host=127.0.0.1", "--user=root", "--port", &self.port.to_string()]);
        command
            .args(["--database=palisade", "--execute", statements])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.context("mariadb could not be started")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mariadb: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of its database `palisade` for its superuser.
    pub fn url(&self) -> String {
        format!("mysql://root@{}/palisade", self.address())
    }

    /// Its process; `None` while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.process.lock().as_ref().map(Process::id)
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

    /// Lets it go on after [`MariaDbServer::stop`].
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
    /// It was started without [`MariaDbOptions::clock`].
    pub fn shift_clock(&self, seconds: i64) -> Result<()> {
        let clock = self.clock.as_ref();
        clock.with_context(|| format!("{} was started with the true clock", self.called()))?.shift(seconds)
    }

    /// What to call it.
    pub fn called(&self) -> String {
        format!("mariadb {}", self.address())
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
}
