mod links;

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use parking_lot::Mutex;
use rustix::process::Signal;
use tempfile::TempDir;

use self::links::Links;
use super::newer::newer;
use super::ports;
use super::process::{self, Place, Process};
use super::redis::TlsFiles;
use crate::bounded::eventually;
use crate::proxy::Weather;

/// How the servers of a cluster are started.
#[derive(Debug, Clone)]
pub struct ZooKeeperOptions {
    /// What Java finds the server in: jars, separated by colons.
    pub classes: String,
    /// Has clients speak TLS.
    pub tls: Option<TlsFiles>,
    /// Knows this user with this password, and nobody else, by SASL.
    pub sasl: Option<(String, String)>,
    /// Further lines of the configuration.
    pub lines: Vec<String>,
    /// Has servers speak to each other through proxies, so that they can be cut off from each other.
    pub proxies: bool,
}

impl Default for ZooKeeperOptions {
    fn default() -> Self {
        let classes = format!("{DEBIAN}:{BESIDE}");
        Self { classes, tls: None, sasl: None, lines: Vec::new(), proxies: false }
    }
}

const DEBIAN: &str = "/usr/share/java/zookeeper.jar";

/// What its manifest leaves out: the first has it say what is wrong, the second is needed to speak TLS.
const BESIDE: &str = "/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar";

/// Where `cargo xtask test` puts a newer ZooKeeper than Debian's: in `$PALISADE_ZOOKEEPER`, else below the
/// build's folder.
///
/// # Errors
/// It is not there.
pub fn newer_zookeeper() -> Result<String> {
    const VARIABLE: &str = "PALISADE_ZOOKEEPER";
    if let Ok(classes) = env::var(VARIABLE) {
        return Ok(classes);
    }
    let java = newer("zookeeper", "usr/share/java/zookeeper.jar", VARIABLE)?;
    // All else, its manifest takes from Debian's stable one. The first would be among that, if it were not named.
    let own = ["zookeeper-jute", "zookeeper"].map(|name| java.with_file_name(format!("{name}.jar")));
    let own = own.map(|jar| jar.to_string_lossy().into_owned());
    Ok(format!("{}:{BESIDE}", own.join(":")))
}

/// Servers of ZooKeeper that are one cluster, each in a process of its own. Killed when dropped.
#[derive(Debug)]
pub struct ZooKeeperSet {
    /// The servers.
    pub servers: Vec<ZooKeeperServer>,
    /// Between them, if they were asked for.
    links: Links,
}

/// One server of a [`ZooKeeperSet`].
#[derive(Debug)]
pub struct ZooKeeperServer {
    options: ZooKeeperOptions,
    number: usize,
    /// Where this one finds all servers; empty for one that is alone.
    peers: Vec<(u16, u16)>,
    /// `None` while it is killed. Declared before the folder, which must outlive it.
    process: Place,
    port: u16,
    /// For clients that speak TLS.
    secure: u16,
    folder: TempDir,
}

impl ZooKeeperSet {
    /// Another program may take a port between our look and the server's.
    const TRIES: usize = 5;

    /// Starts so many servers at free ports, and waits until all can decide.
    ///
    /// # Errors
    /// Java or the server is missing, or does not come up; with the end of its log.
    pub async fn start(nodes: usize, options: ZooKeeperOptions) -> Result<Self> {
        for attempt in 1.. {
            let set = Self::prepare(nodes, &options).await?;
            match try_join_all(set.servers.iter().map(ZooKeeperServer::run)).await {
                Err(_) if attempt < Self::TRIES && set.is_in_use() => {}
                started => return started.map(|_| set),
            }
        }
        bail!("no attempt was made")
    }

    async fn prepare(nodes: usize, options: &ZooKeeperOptions) -> Result<Self> {
        let listen: Vec<(u16, u16)> = if nodes == 1 {
            Vec::new()
        } else {
            (0..nodes).map(|_| Ok((ports::free()?, ports::free()?))).collect::<Result<_>>()?
        };
        let links = if options.proxies { Links::start(&listen).await? } else { Links::default() };
        let servers = (0..nodes).map(|at| {
            let folder = tempfile::Builder::new().prefix("palisade-zookeeper").tempdir()?;
            fs::create_dir(folder.path().join("data"))?;
            fs::write(folder.path().join("data/myid"), (at + 1).to_string())?;
            Ok(ZooKeeperServer {
                options: options.clone(),
                number: at + 1,
                peers: links.seen_by(at, &listen),
                process: Mutex::new(None),
                port: ports::free()?,
                secure: ports::free()?,
                folder,
            })
        });
        Ok(Self { servers: servers.collect::<Result<_>>()?, links })
    }

    fn is_in_use(&self) -> bool {
        self.servers.iter().any(|server| server.log().contains("Address already in use"))
    }

    /// Where its servers listen for clients.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(ZooKeeperServer::address).collect()
    }

    /// Its servers as a URL names them.
    pub fn hosts(&self) -> String {
        self.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Which server leads, if one does.
    pub async fn leader(&self) -> Option<usize> {
        for (at, server) in self.servers.iter().enumerate() {
            if server.mode().await.as_deref() == Some("leader") {
                return Some(at);
            }
        }
        None
    }

    /// Turns the weather between a server and all others.
    pub fn set_around(&self, server: usize, weather: Weather) {
        self.links.set_around(server, weather);
    }
}

impl ZooKeeperServer {
    /// Far longer than a start takes.
    const PATIENCE: Duration = Duration::from_mins(1);

    /// Where it listens for clients.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its port for clients that speak TLS.
    pub fn secure_port(&self) -> u16 {
        self.secure
    }

    /// What to call it.
    pub fn called(&self) -> String {
        format!("zookeeper {} at {}", self.number, self.address())
    }

    fn configuration(&self) -> String {
        let data = self.folder.path().join("data");
        // Short ticks, so that tests need not wait for seconds.
        let mut text = format!(
            "tickTime=200\ninitLimit=50\nsyncLimit=6\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nminSessionTimeout=400\nmaxSessionTimeout=3600000\n",
            data.display(),
            self.port
        );
        for (at, (followers, elections)) in self.peers.iter().enumerate() {
            let _ = writeln!(text, "server.{}=127.0.0.1:{followers}:{elections}", at + 1);
        }
        if self.options.tls.is_some() {
            let _ = writeln!(text, "secureClientPort={}\nsecureClientPortAddress=127.0.0.1", self.secure);
        }
        for line in &self.options.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn properties(&self) -> Result<Vec<String>> {
        let mut properties: Vec<String> = vec![
            "-Dzookeeper.preAllocSize=1024".into(),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".into(),
        ];
        if self.options.proxies {
            // Who was alone for long asks less and less often whether somebody leads; up to once a minute.
            properties.push("-Dzookeeper.fastleader.maxNotificationInterval=1000".into());
        }
        if let Some(tls) = &self.options.tls {
            // It wants a key and its certificate in one file.
            let both = self.folder.path().join("both.pem");
            fs::write(&both, fs::read_to_string(&tls.key)? + &fs::read_to_string(&tls.cert)?)?;
            properties.extend([
                "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
                format!("-Dzookeeper.ssl.keyStore.location={}", both.display()),
                "-Dzookeeper.ssl.keyStore.type=PEM".to_owned(),
                format!("-Dzookeeper.ssl.trustStore.location={}", tls.ca.display()),
                "-Dzookeeper.ssl.trustStore.type=PEM".to_owned(),
                "-Dzookeeper.ssl.hostnameVerification=false".to_owned(),
            ]);
        }
        if let Some((user, password)) = &self.options.sasl {
            let login = self.folder.path().join("jaas.conf");
            let text = format!(
                "Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{user}=\"{password}\"; }};\n"
            );
            fs::write(&login, text)?;
            properties.push(format!("-Djava.security.auth.login.config={}", login.display()));
            let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
            properties.push(format!("-Dzookeeper.authProvider.1={provider}"));
        }
        Ok(properties)
    }

    async fn run(&self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let configuration = self.folder.path().join("zoo.cfg");
        fs::write(&configuration, self.configuration())?;
        let mut command = Process::command(Path::new("java"));
        command.args(["-Xmx128m", "-Xms48m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(self.properties()?).arg("-cp").arg(&self.options.classes);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(configuration);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(command)
            .await
            .context("Java or ZooKeeper is missing: apt-get install default-jre-headless zookeeper")?;
        *self.process.lock() = Some(process);
        self.serves().await
    }

    /// Waits until it can decide.
    ///
    /// # Errors
    /// It does not come up in time, or has ended.
    pub async fn serves(&self) -> Result<()> {
        let up = eventually(Self::PATIENCE, "a server that can decide", async || {
            let ended = self.process.lock().as_mut().map(Process::ended).transpose()?.flatten();
            if let Some(status) = ended {
                bail!("ZooKeeper ended with {status}");
            }
            // The port for TLS is opened last.
            let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, self.secure));
            if self.options.tls.is_some() && TcpStream::connect(secure).is_err() {
                return Ok(None);
            }
            Ok(self.mode().await.map(drop))
        });
        up.await.with_context(|| format!("{}: {}", self.called(), self.log()))
    }

    /// Whether it leads, follows or is alone; `None` while it does not serve.
    pub async fn mode(&self) -> Option<String> {
        let said = self.say("srvr").await.ok()?;
        said.lines().find_map(|line| Some(line.strip_prefix("Mode: ")?.to_owned()))
    }

    /// How many requests it has received so far, pings among them.
    ///
    /// # Errors
    /// It does not say.
    pub async fn requests(&self) -> Result<u64> {
        let said = self.say("srvr").await?;
        let count = said.lines().find_map(|line| line.strip_prefix("Received: ")?.parse().ok());
        count.context("the server does not say how many requests it received")
    }

    /// Says one of its four-letter words, and returns the answer.
    ///
    /// # Errors
    /// There is none.
    pub async fn say(&self, word: &'static str) -> Result<String> {
        let address = self.address();
        tokio::task::spawn_blocking(move || ask(address, word)).await?
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

    /// Starts all again, none of which may be able to decide without the others.
    ///
    /// # Errors
    /// One cannot be started.
    pub async fn start_with_others(servers: &[Self]) -> Result<()> {
        try_join_all(servers.iter().map(Self::run)).await.map(drop)
    }

    fn log(&self) -> String {
        const SHOWN: usize = 2000;
        let text = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let from = text.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
        text[from..].to_owned()
    }
}

fn ask(address: SocketAddr, word: &str) -> Result<String> {
    const LIMIT: Duration = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
