use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use parking_lot::Mutex;
use rustix::process::Signal;
use tempfile::TempDir;

use super::newer::newer;
use super::peer_net::PeerNet;
use super::ports;
use super::process::{self, Place, Process};
use super::redis::TlsFiles;
use crate::bounded::eventually;

/// How the servers of a cluster are started.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// The program.
    pub program: PathBuf,
    /// Has clients speak TLS; whoever has no certificate of `ca` is refused.
    pub tls: Option<TlsFiles>,
    /// Further options.
    pub args: Vec<String>,
    /// Lets [`EtcdSet::cut_off`] keep its servers apart: they then speak through a proxy to each other.
    pub cuttable: bool,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { program: "etcd".into(), tls: None, args: Vec::new(), cuttable: false }
    }
}

/// Where `cargo xtask test` puts a newer etcd than Debian's: in `$PALISADE_ETCD`, else below the
/// build's folder.
///
/// # Errors
/// It is not there.
pub fn newer_etcd() -> Result<PathBuf> {
    newer("etcd", "usr/bin/etcd", "PALISADE_ETCD")
}

/// Servers of etcd that are one cluster, each in a process of its own. Killed when dropped.
#[derive(Debug)]
pub struct EtcdSet {
    /// The servers.
    pub servers: Vec<EtcdServer>,
    /// What they speak through to each other; declared after them, which need it.
    net: Option<PeerNet>,
}

/// One server of an [`EtcdSet`].
#[derive(Debug)]
pub struct EtcdServer {
    options: EtcdOptions,
    name: String,
    /// All servers, with where each is called by the others.
    cluster: String,
    /// Where this one is.
    called: String,
    /// `None` while it is killed. Declared before the folder, which must outlive it.
    process: Place,
    ports: Ports,
    folder: TempDir,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    clients: u16,
    peers: u16,
    health: u16,
}

impl EtcdSet {
    /// Another program may take a port between our look and the server's.
    const TRIES: usize = 5;

    /// Starts so many servers at free ports, and waits until all can decide.
    ///
    /// # Errors
    /// The program is missing, or does not come up; with the end of its log.
    pub async fn start(nodes: usize, options: EtcdOptions) -> Result<Self> {
        for attempt in 1.. {
            let set = Self::prepare(nodes, &options)?;
            match try_join_all(set.servers.iter().map(EtcdServer::run)).await {
                Err(_) if attempt < Self::TRIES && set.is_in_use() => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    set.introduce().await?;
                    return Ok(set);
                }
            }
        }
        bail!("no attempt was made")
    }

    fn prepare(nodes: usize, options: &EtcdOptions) -> Result<Self> {
        let ports = (0..nodes)
            .map(|_| Ok(Ports { clients: ports::free()?, peers: ports::free()?, health: ports::free()? }))
            .collect::<Result<Vec<_>>>()?;
        let listening: Vec<SocketAddr> =
            ports.iter().map(|ports| (Ipv4Addr::LOCALHOST, ports.peers).into()).collect();
        let net = options.cuttable.then(|| PeerNet::start(&listening)).transpose()?;
        let called = net.as_ref().map_or(&listening[..], PeerNet::addresses);
        let peers = called.iter().enumerate().map(|(at, address)| format!("n{at}=http://{address}"));
        let cluster = peers.collect::<Vec<_>>().join(",");
        let servers = ports.into_iter().zip(called).enumerate().map(|(at, (ports, called))| {
            let folder = tempfile::Builder::new().prefix("palisade-etcd").tempdir()?;
            let (options, cluster) = (options.clone(), cluster.clone());
            let process = Mutex::new(None);
            let called = format!("http://{called}");
            Ok(EtcdServer { options, name: format!("n{at}"), cluster, called, process, ports, folder })
        });
        Ok(Self { servers: servers.collect::<Result<_>>()?, net })
    }

    /// Tells the network between the servers who is who.
    async fn introduce(&self) -> Result<()> {
        let Some(net) = &self.net else { return Ok(()) };
        let list = self.servers[0].ctl(&["member", "list"]).await?;
        let place_of = |line: &str| {
            let mut words = line.split(", ");
            let (id, name) = (words.next()?, words.nth(1)?);
            let place = self.servers.iter().position(|server| server.name == name)?;
            Some((id.to_owned(), place))
        };
        let ids: HashMap<String, usize> = list.lines().filter_map(place_of).collect();
        ensure!(ids.len() == self.servers.len(), "the members are not those that were started: {list}");
        net.know(ids);
        Ok(())
    }

    /// Cuts a server off from the others; clients still reach it. Only with [`EtcdOptions::cuttable`].
    ///
    /// # Errors
    /// The servers do not speak through anything that could be cut.
    pub fn cut_off(&self, place: usize) -> Result<()> {
        self.net.as_ref().context("these servers cannot be cut off from each other")?.cut_off(place);
        Ok(())
    }

    /// Ends that, and waits until the server can decide again.
    ///
    /// # Errors
    /// It does not come back.
    pub async fn rejoin(&self, place: usize) -> Result<()> {
        self.net.as_ref().context("these servers cannot be cut off from each other")?.rejoin(place);
        self.servers[place].serves().await
    }

    fn is_in_use(&self) -> bool {
        self.servers.iter().any(|server| server.log().contains("address already in use"))
    }

    /// Where its servers listen for clients.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(EtcdServer::address).collect()
    }

    /// Its servers as a URL names them.
    pub fn hosts(&self) -> String {
        self.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

fn local(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl EtcdServer {
    /// Far longer than a start takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Where it listens for clients.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.clients).into()
    }

    /// What to call it.
    pub fn called(&self) -> String {
        format!("etcd {} at {}", self.name, self.address())
    }

    async fn run(&self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut command = Process::command(&self.options.program);
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        let clients = format!("{scheme}://127.0.0.1:{}", self.ports.clients);
        let peers = local(self.ports.peers);
        command.arg("--name").arg(&self.name).arg("--data-dir").arg(self.folder.path().join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &self.called]);
        command.args(["--initial-cluster", &self.cluster, "--initial-cluster-state", "new"]);
        command.args(["--listen-metrics-urls", &local(self.ports.health)]);
        // A killed process loses nothing by it, and tests on busy disks are not slowed.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"]);
        command.args(["--logger", "zap", "--log-level", "warn"]);
        if let Some(tls) = &self.options.tls {
            command.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
        }
        command.args(&self.options.args);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process =
            Process::spawn(command).await.context("etcd is missing: apt-get install etcd-server")?;
        *self.process.lock() = Some(process);
        self.serves().await
    }

    /// Waits until it can decide.
    ///
    /// # Errors
    /// It does not come up in time, or has ended.
    pub async fn serves(&self) -> Result<()> {
        let health = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.health));
        let up = eventually(Self::PATIENCE, "a server that can decide", async || {
            let ended = self.process.lock().as_mut().map(Process::ended).transpose()?.flatten();
            if let Some(status) = ended {
                bail!("etcd ended with {status}");
            }
            let healthy = tokio::task::spawn_blocking(move || http(health, "/health")).await?;
            Ok(healthy.is_ok_and(|answer| answer.contains("\"health\":\"true\"")).then_some(()))
        });
        up.await.with_context(|| format!("{}: {}", self.called(), self.log()))
    }

    /// Stops it (SIGSTOP).
    ///
    /// # Errors
    /// It does not run.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// It does not run.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        process::send(&self.process, signal, "the server")
    }

    /// Kills it (kill −9).
    ///
    /// # Errors
    /// It does not end.
    pub async fn kill(&self) -> Result<()> {
        process::end(&self.process, Signal::KILL).await
    }

    /// Starts it again at the same address with its data, and waits until it can decide.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start_again(&self) -> Result<()> {
        self.run().await
    }

    /// Starts it again without waiting for others.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn start_with_others(servers: &[Self]) -> Result<()> {
        try_join_all(servers.iter().map(Self::run)).await.map(drop)
    }

    /// Runs `etcdctl` against it, and returns what that prints.
    ///
    /// # Errors
    /// It fails, or is missing.
    pub async fn ctl(&self, args: &[&str]) -> Result<String> {
        let endpoints = format!("--endpoints={}", self.address());
        let mut command = Command::new("etcdctl");
        command.arg(endpoints).args(args).env("ETCDCTL_API", "3").stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await?;
        let output = output.context("etcdctl is missing: apt-get install etcd-client")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "etcdctl {args:?}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }

    /// Puts a backup that `etcdctl snapshot save` made in place of its data, while it is killed. For a
    /// cluster of one.
    ///
    /// # Errors
    /// The backup is none.
    pub async fn restore(&self, backup: &Path, token: &str) -> Result<()> {
        let data = self.folder.path().join("data");
        fs::remove_dir_all(&data)?;
        let (backup, data) = (backup.to_string_lossy(), data.to_string_lossy());
        let args = ["snapshot", "restore", &backup, "--data-dir", &data, "--name", &self.name];
        let cluster = ["--initial-cluster", &self.cluster, "--initial-advertise-peer-urls", &self.called];
        let token = ["--initial-cluster-token", token];
        self.ctl(&[&args[..], &cluster[..], &token[..]].concat()).await.map(drop)
    }

    /// How many requests it has answered so far, each message to the keep-alive stream among them.
    ///
    /// # Errors
    /// It does not say.
    pub async fn requests(&self) -> Result<u64> {
        let metrics = self.metrics().await?;
        let unary = |labels: &str| labels.contains("grpc_type=\"unary\"");
        let beats = |labels: &str| labels.contains("grpc_method=\"LeaseKeepAlive\"");
        Ok(counted(&metrics, "grpc_server_handled_total{", unary)
            + counted(&metrics, "grpc_server_msg_received_total{", beats))
    }

    /// How many messages of one method the server has had, as `Range` or `Watch`.
    ///
    /// # Errors
    /// It does not say.
    pub async fn messages(&self, method: &str) -> Result<u64> {
        let metrics = self.metrics().await?;
        let label = format!("grpc_method=\"{method}\"");
        Ok(counted(&metrics, "grpc_server_msg_received_total{", |labels: &str| labels.contains(&label)))
    }

    async fn metrics(&self) -> Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.health));
        tokio::task::spawn_blocking(move || http(address, "/metrics")).await?
    }

    fn log(&self) -> String {
        const SHOWN: usize = 2000;
        let text = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let from = text.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
        text[from..].to_owned()
    }
}

/// Asks a server how it is, as a person would.
fn http(address: SocketAddr, path: &str) -> Result<String> {
    const LIMIT: Duration = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The sum of a counter over all its labels that `wanted` picks.
fn counted(metrics: &str, name: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.split_once("} "));
    let picked = lines.filter(|(labels, _)| wanted(labels));
    #[allow(clippy::cast_sign_loss, reason = "a counter is not negative")]
    picked.filter_map(|(_, count)| count.parse::<f64>().ok()).map(|count| count as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_their_labels() {
        let text = "# HELP a\na{m=\"Txn\",t=\"unary\"} 3\na{m=\"Range\",t=\"unary\"} 1e+06\na{m=\"W\"} 9\nab{x=\"1\"} 7\n";
        assert_eq!(counted(text, "a{", |labels| labels.contains("unary")), 1_000_003);
    }
}
