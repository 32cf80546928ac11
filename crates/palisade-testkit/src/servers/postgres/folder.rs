use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::PostgresOptions;
use crate::servers::process::Process;

/// The folder of a server that refuses to run as root.
#[derive(Debug)]
pub(super) struct Folder {
    folder: TempDir,
    /// Whose files they are, if we are root.
    user: Option<User>,
}

#[derive(Debug)]
struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
}

impl User {
    /// The user that Debian's package makes.
    fn of_the_package() -> Result<Self> {
        const NAME: &str = "postgres";
        let users = fs::read_to_string("/etc/passwd")?;
        let line = users.lines().find_map(|line| line.strip_prefix("postgres:"));
        let mut fields = line.context("there is no user postgres")?.split(':').skip(1);
        let mut number = || fields.next().and_then(|field| field.parse().ok()).context("/etc/passwd is odd");
        Ok(Self { name: NAME, uid: number()?, gid: number()? })
    }
}

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("palisade-postgres").tempdir()?;
        let user = rustix::process::getuid().is_root().then(User::of_the_package).transpose()?;
        let made = Self { folder, user };
        made.give(made.path())?;
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    fn give(&self, path: &Path) -> Result<()> {
        match &self.user {
            Some(user) => Ok(chown(path, Some(user.uid), Some(user.gid))?),
            None => Ok(()),
        }
    }

    /// A command that runs `program` as the user whose files they are, without our environment.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = match &self.user {
            Some(user) => Process::command_as(user.name, program),
            None => Process::command(program),
        };
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(self.path());
        command
    }

    /// Makes a new cluster, with what was asked for besides settings.
    pub(super) async fn make_cluster(&self, options: &PostgresOptions) -> Result<()> {
        let mut command = self.command(&options.programs.join("initdb"));
        command.arg("-D").arg(self.data());
        command.args(["-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--no-locale"]);
        let mut command = tokio::process::Command::from(command);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb: {}", said.trim());
        if let Some(hba) = &options.hba {
            fs::write(self.data().join("pg_hba.conf"), hba)?;
        }
        if let Some(tls) = &options.tls {
            self.bring(&tls.cert, "server.pem")?;
            self.bring(&tls.key, "server.key")?;
        }
        Ok(())
    }

    /// Copies a file into the cluster, for nobody but the server to read.
    fn bring(&self, from: &Path, name: &str) -> Result<()> {
        let to = self.data().join(name);
        fs::copy(from, &to)?;
        fs::set_permissions(&to, Permissions::from_mode(0o600))?;
        self.give(&to)
    }

    pub(super) fn wipe(&self) -> Result<()> {
        Ok(fs::remove_dir_all(self.data())?)
    }

    pub(super) fn forget_the_last_process(&self) -> Result<()> {
        let file = self.data().join("postmaster.pid");
        if file.exists() {
            fs::remove_file(file)?;
        }
        Ok(())
    }
}
