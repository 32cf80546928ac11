use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::process::Process;
use super::{PostgresServer, ports};
use crate::bounded::eventually;

/// A pooler in front of a PostgreSQL server: each transaction of a client may run on another of its connections.
/// Killed when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    _process: Process,
    _folder: TempDir,
}

impl PgBouncer {
    /// Starts one before `server`, and waits until it listens.
    ///
    /// # Errors
    /// The program is missing, or does not come up.
    pub async fn start(server: &PostgresServer) -> Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let program = Path::new("/usr/sbin/pgbouncer");
        ensure!(program.is_file(), "{} is missing: apt-get install pgbouncer", program.display());
        let folder = tempfile::Builder::new().prefix("palisade-pgbouncer").tempdir()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let (port, config) = (ports::free()?, folder.path().join("config"));
        let address = server.address();
        // With any login, it logs in as one user.
        let text = format!(
            "[databases]\n* = user=postgres host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 2000\n\
             default_pool_size = 30\nserver_login_retry = 1\n",
            address.ip(),
            address.port()
        );
        fs::write(&config, text)?;
        let mut command = server.command(program);
        let log = File::create(folder.path().join("log"))?;
        command.arg(&config).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(command).await?;
        let listening = eventually(PATIENCE, "the start of a pooler", async || {
            Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok())
        });
        let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        listening.await.with_context(|| format!("pgbouncer did not come up:\n{}", log()))?;
        Ok(Self { port, _process: process, _folder: folder })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of the database `postgres` behind it, for the superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }
}
