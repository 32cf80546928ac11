//! The floor of ZooKeeper: bare requests over the wire that the engine itself has.

use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use palisade_testkit::Misuse;
use palisade_zookeeper::ZooKeeperConfig;
use palisade_zookeeper::bare::{Bare, BareWatch};
use tokio::sync::Mutex;

use super::{Floors, RawClient, RawLimit};
use crate::peer::Peer;

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let (url, options) = url.split_once('?').unwrap_or((url, ""));
    let ours = ["namespace", "ttl", "call-timeout"];
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let mut others = options.split('&').filter(|option| !option.is_empty()).map(name);
    if let Some(option) = others.find(|name| !ours.contains(&name.as_str())) {
        return Err(Misuse(format!("the raw limit of ZooKeeper cannot be had with option {option}")).into());
    }
    let folder = format!("/palisade-bench-{}", uuid::Uuid::new_v4().simple());
    Ok(Arc::new(ZooKeeper { url: url.to_owned(), config: ZooKeeperConfig::parse(url)?, folder }))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    let (folder, url) = address.split_once('\n').context("an address begins with a folder")?;
    let config = ZooKeeperConfig::parse(url)?;
    Ok(Arc::new(ZooKeeper { url: url.to_owned(), config, folder: folder.to_owned() }))
}

/// What the peer is called.
pub(crate) const CURATOR: &str = "Curator's InterProcessMutex";

/// The timeout of the session that everything is on.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the death of a holder leaves behind stands for so long: short, because a run waits for it.
const BRIEF: Duration = Duration::from_secs(2);

/// Bare requests at any server.
#[derive(Debug)]
struct ZooKeeper {
    /// Without options.
    url: String,
    config: ZooKeeperConfig,
    /// Below which all nodes of this run are.
    folder: String,
}

#[async_trait]
impl RawLimit for ZooKeeper {
    fn floors(&self) -> Floors {
        Floors {
            pair: "an ephemeral, sequential node, and its delete",
            turn: "a token: a write by one process, a watch of the next",
            hold: "an ephemeral node of a session of two seconds, and a watch of it",
            keep: "a transaction that changes nothing",
        }
    }

    fn address(&self) -> String {
        format!("{}\n{}", self.folder, self.url)
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        let bare = Bare::connect(self.config.clone(), TIMEOUT).await?;
        bare.make(&self.folder, b"").await?;
        Ok(Arc::new(Client {
            bare,
            config: self.config.clone(),
            folder: self.folder.clone(),
            brief: Mutex::default(),
            place: Mutex::default(),
            waits: AtomicBool::new(false),
        }))
    }

    async fn requests(&self) -> Result<Option<u64>> {
        if self.config.tls.is_some() {
            return Ok(None);
        }
        let mut sum = 0;
        for server in self.config.servers.clone() {
            sum += tokio::task::spawn_blocking(move || received(&server)).await??;
        }
        Ok(Some(sum))
    }

    /// Curator's, if there is a command for it: `cargo xtask bench` compiles it where Java and Curator are installed.
    fn peers(&self) -> Vec<Peer> {
        let Ok(command) = std::env::var("PALISADE_ZOOKEEPER_CURATOR") else { return Vec::new() };
        if self.config.login.is_some() || self.config.tls.is_some() {
            return Vec::new();
        }
        let hosts = self.config.servers.join(",") + &self.config.chroot;
        let words = command.split_whitespace().map(OsString::from);
        vec![Peer { name: CURATOR, program: words.chain([hosts.into()]).collect() }]
    }

    fn lease(&self) -> Option<Duration> {
        Some(BRIEF)
    }
}

/// How many requests a server has had, as it tells anyone: pings are among them.
fn received(server: &str) -> Result<u64> {
    use std::io::{Read, Write};
    const LIMIT: Duration = Duration::from_secs(5);
    let address = server.to_socket_addrs()?.next().context("the server has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"srvr")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let received = answer.lines().find_map(|line| line.strip_prefix("Received: ")?.parse().ok());
    received.context("the server does not say how many requests it had")
}

struct Client {
    bare: Bare,
    config: ZooKeeperConfig,
    folder: String,
    /// The session that the lock is on while this process holds it.
    brief: Mutex<Option<Bare>>,
    /// The watch of this process' node in the line, its path, and that of the next.
    place: Mutex<Option<(BareWatch, String, String)>>,
    waits: AtomicBool,
}

impl Client {
    fn seat(&self, place: usize) -> String {
        format!("{}/seat-{place}", self.folder)
    }

    fn lock(&self) -> String {
        format!("{}/hold", self.folder)
    }
}

#[async_trait]
impl RawClient for Client {
    async fn pair(&self, key: &str) -> Result<()> {
        // One folder for all, as a slash would be one more.
        let path = format!("{}/{}-", self.folder, key.replace('/', "-"));
        let path = self.bare.create(&path, true).await?;
        ensure!(self.bare.delete(&path).await?, "{path} was lost");
        Ok(())
    }

    async fn join(&self, place: usize, of: usize) -> Result<()> {
        let (own, next) = (self.seat(place), self.seat((place + 1) % of));
        self.bare.make(&own, b"").await?;
        self.bare.make(&next, b"").await?;
        let watch = self.bare.watch(&own).await?;
        *self.place.lock().await = Some((watch, own, next));
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        ensure!(self.bare.write(&self.seat(0), b"", -1).await?, "nobody is in line");
        Ok(())
    }

    async fn turn(&self) -> Result<()> {
        let mut place = self.place.lock().await;
        let (watch, own, _) = place.as_mut().context("this process is in no line")?;
        watch.something().await?;
        // A watch is for once.
        *watch = self.bare.watch(own).await?;
        Ok(())
    }

    async fn pass(&self) -> Result<()> {
        let place = self.place.lock().await;
        let (_, _, next) = place.as_ref().context("this process is in no line")?;
        ensure!(self.bare.write(next, b"", -1).await?, "the next one is gone");
        Ok(())
    }

    async fn hold(&self) -> Result<()> {
        let lock = self.lock();
        let brief = Bare::connect(self.config.clone(), BRIEF).await?;
        while !brief.take(&lock).await? {
            // It may be gone by now.
            if let Ok(watch) = brief.watch(&lock).await {
                self.waits.store(true, Ordering::Relaxed);
                watch.something().await?;
            }
        }
        self.waits.store(false, Ordering::Relaxed);
        *self.brief.lock().await = Some(brief);
        Ok(())
    }

    async fn until_waiting(&self) -> Result<()> {
        while !self.waits.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn let_go(&self) -> Result<()> {
        self.bare.delete(&self.lock()).await?;
        Ok(())
    }

    async fn fill(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.bare.create(&format!("{}/held-", self.folder), true).await?;
        }
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        self.bare.beat().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use palisade_testkit::servers::{ZooKeeperOptions, ZooKeeperSet};

    use super::*;

    #[tokio::test]
    async fn a_server_counts_three_requests_for_taking_and_releasing() {
        let set = ZooKeeperSet::start(1, ZooKeeperOptions::default()).await.unwrap();
        let url = format!("zk://{}", set.hosts());
        let raw = open(&url).unwrap();
        let client = palisade::Client::builder().connect(&url).await.unwrap();
        let mutex = client.mutex("bench").unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        let before = raw.requests().await.unwrap();
        for _ in 0..10 {
            mutex.acquire().await.unwrap().release().await.unwrap();
        }
        let after = raw.requests().await.unwrap();
        let asked = before.zip(after).map_or(0, |(before, after)| after - before);
        // Create, list, delete; the question itself is one, and a ping may come in between.
        assert!((30..=33).contains(&asked), "{asked} requests for ten pairs");
    }

    #[tokio::test]
    async fn a_token_goes_round_and_a_lock_is_taken_over_when_its_time_is_up() {
        let set = ZooKeeperSet::start(1, ZooKeeperOptions::default()).await.unwrap();
        let raw = open(&format!("zk://{}", set.hosts())).unwrap();
        let attached = attach(&raw.address()).unwrap();
        let (one, other) = (raw.client().await.unwrap(), attached.client().await.unwrap());
        one.pair("bench").await.unwrap();
        one.fill(3).await.unwrap();
        one.keep().await.unwrap();
        one.join(0, 2).await.unwrap();
        other.join(1, 2).await.unwrap();
        one.start().await.unwrap();
        for member in [&one, &other, &one, &other] {
            member.turn().await.unwrap();
            member.pass().await.unwrap();
        }
        other.hold().await.unwrap();
        let (held, ()) = tokio::join!(one.hold(), async {
            one.until_waiting().await.unwrap();
            drop(other);
        });
        held.unwrap();
        one.let_go().await.unwrap();
    }
}
