//! The floor of etcd: bare requests over the connection that most clients of etcd in Rust have (tonic's).

use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use palisade_etcd::EtcdConfig;
use palisade_etcd::bare::{Bare, BareWatch};
use palisade_testkit::Misuse;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use super::{Floors, RawClient, RawLimit};
use crate::peer::Peer;

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let (url, options) = url.split_once('?').unwrap_or((url, ""));
    let ours = ["namespace", "ttl", "call-timeout"];
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let mut others = options.split('&').filter(|option| !option.is_empty()).map(name);
    if let Some(option) = others.find(|name| !ours.contains(&name.as_str())) {
        return Err(Misuse(format!("the raw limit of etcd cannot be had with option {option}")).into());
    }
    let prefix = format!("palisade-bench-{}", uuid::Uuid::new_v4().simple());
    Ok(Arc::new(Etcd { url: url.to_owned(), config: EtcdConfig::parse(url)?, prefix }))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    let (prefix, url) = address.split_once('\n').context("an address begins with a prefix")?;
    Ok(Arc::new(Etcd { url: url.to_owned(), config: EtcdConfig::parse(url)?, prefix: prefix.to_owned() }))
}

/// What peers are called.
pub(crate) const GO_MUTEX: &str = "Go's Mutex";
pub(crate) const LOCK_RPC: &str = "the v3 lock RPC";

/// The TTL of the lease that everything is on, in seconds.
const TTL: u32 = 30;

/// How often it is renewed: a run of one shape may take longer, and what is left of one that was ended should not.
const BEAT: Duration = Duration::from_secs(10);

/// What the death of a holder leaves behind stands for so long: short, because a run waits for it.
const LEASE: Duration = Duration::from_secs(2);

/// Bare requests at one server.
#[derive(Debug)]
struct Etcd {
    /// Without options.
    url: String,
    config: EtcdConfig,
    /// What all keys of this run begin with.
    prefix: String,
}

#[async_trait]
impl RawLimit for Etcd {
    fn floors(&self) -> Floors {
        Floors {
            pair: "a transaction that makes a key on a lease, and its delete",
            turn: "a token: a put by one process, a watch of the next",
            hold: "a key on a lease of two seconds, and a watch of it",
            keep: "a keep-alive of one lease",
        }
    }

    fn address(&self) -> String {
        format!("{}\n{}", self.prefix, self.url)
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        let bare = Arc::new(Bare::connect(&self.config).await?);
        let lease = bare.lease(TTL).await?;
        let beating = Arc::clone(&bare);
        let beats = tokio::spawn(async move {
            loop {
                tokio::time::sleep(BEAT).await;
                // Whoever uses the lease is told what is wrong.
                let _ = beating.beat(lease).await;
            }
        });
        Ok(Arc::new(Client {
            bare,
            beats: beats.abort_handle(),
            prefix: self.prefix.clone(),
            lease,
            own: uuid::Uuid::new_v4().simple().to_string(),
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
            sum += tokio::task::spawn_blocking(move || counted(&metrics(&server)?)).await??;
        }
        Ok(Some(sum))
    }

    fn command(&self) -> Option<Vec<OsString>> {
        // With a password it would have to be told on the command line, where everyone sees it.
        if self.config.login.is_some() || self.config.tls.is_some() {
            return None;
        }
        let endpoints = format!("--endpoints={}", self.config.servers.join(","));
        let words = ["env", "ETCDCTL_API=3", "etcdctl", &endpoints, "lock", "palisade-bench", "true"];
        Some(words.map(OsString::from).to_vec())
    }

    /// Go's, if there is a program of them: `cargo xtask bench` builds it where Go is installed.
    fn peers(&self) -> Vec<Peer> {
        let Some(program) = std::env::var_os("PALISADE_ETCD_GO") else { return Vec::new() };
        if self.config.login.is_some() || self.config.tls.is_some() {
            return Vec::new();
        }
        let endpoint = self.config.servers[0].clone();
        let peer = |name, kind: &str| Peer {
            name,
            program: vec![program.clone(), endpoint.clone().into(), kind.into()],
        };
        vec![peer(GO_MUTEX, "mutex"), peer(LOCK_RPC, "rpc")]
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }
}

/// What a server counts, as it shows it to anyone.
fn metrics(server: &str) -> Result<String> {
    use std::io::{Read, Write};
    const LIMIT: Duration = Duration::from_secs(5);
    let address = server.to_socket_addrs()?.next().context("the server has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// How many requests a server has had: single ones, and messages to its streams.
fn counted(metrics: &str) -> Result<u64> {
    let mut sum = 0.0;
    for line in metrics.lines() {
        let single = line.starts_with("grpc_server_handled_total{") && line.contains("grpc_type=\"unary\"");
        let streamed = line.starts_with("grpc_server_msg_received_total{") && line.contains("bidi_stream");
        if single || streamed {
            let (_, count) = line.rsplit_once(' ').context("a count ends its line")?;
            sum += count.parse::<f64>()?;
        }
    }
    #[allow(clippy::cast_sign_loss, reason = "a counter is not negative")]
    Ok(sum as u64)
}

struct Client {
    bare: Arc<Bare>,
    /// Renews the lease.
    beats: AbortHandle,
    prefix: String,
    lease: i64,
    /// What keys of this client alone end with.
    own: String,
    /// The watch of this process' key in the line, and the key of the next.
    place: Mutex<Option<(BareWatch, String)>>,
    waits: AtomicBool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

impl Client {
    fn seat(&self, place: usize) -> String {
        format!("{}/line/{place}", self.prefix)
    }

    fn lock(&self) -> String {
        format!("{}/hold", self.prefix)
    }
}

#[async_trait]
impl RawClient for Client {
    async fn pair(&self, key: &str) -> Result<()> {
        let key = format!("{}/{key}", self.prefix);
        ensure!(self.bare.take(&key, self.lease).await?, "somebody else has {key}");
        ensure!(self.bare.delete(&key).await?, "{key} was lost");
        Ok(())
    }

    async fn join(&self, place: usize, of: usize) -> Result<()> {
        let watch = self.bare.watch(&self.seat(place)).await?;
        *self.place.lock().await = Some((watch, self.seat((place + 1) % of)));
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        Ok(self.bare.put(&self.seat(0)).await?)
    }

    async fn turn(&self) -> Result<()> {
        let mut place = self.place.lock().await;
        let (watch, _) = place.as_mut().context("this process is in no line")?;
        Ok(watch.something().await?)
    }

    async fn pass(&self) -> Result<()> {
        let place = self.place.lock().await;
        let (_, next) = place.as_ref().context("this process is in no line")?;
        Ok(self.bare.put(next).await?)
    }

    async fn hold(&self) -> Result<()> {
        let lock = self.lock();
        let mut watch = self.bare.watch(&lock).await?;
        // On a lease that lives while this waits.
        while !self.bare.take(&lock, self.lease).await? {
            self.waits.store(true, Ordering::Relaxed);
            watch.something().await?;
        }
        self.waits.store(false, Ordering::Relaxed);
        // On a short one from here on, for the next who waits for its end.
        let brief = self.bare.lease(LEASE.as_secs() as u32).await?;
        self.bare.delete(&lock).await?;
        ensure!(self.bare.take(&lock, brief).await?, "somebody else has {lock}");
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
        for number in 0..count {
            let key = format!("{}/{}/{number}", self.prefix, self.own);
            ensure!(self.bare.take(&key, self.lease).await?, "somebody else has what this run is to hold");
        }
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        Ok(self.bare.beat(self.lease).await?)
    }
}

#[cfg(test)]
mod tests {
    use palisade_testkit::servers::{EtcdOptions, EtcdSet};

    use super::*;

    #[test]
    fn requests_are_counted_once() {
        let metrics = "grpc_server_handled_total{grpc_method=\"Txn\",grpc_type=\"unary\"} 7\n\
            grpc_server_handled_total{grpc_method=\"Watch\",grpc_type=\"bidi_stream\"} 2\n\
            grpc_server_msg_received_total{grpc_method=\"Txn\",grpc_type=\"unary\"} 7\n\
            grpc_server_msg_received_total{grpc_method=\"LeaseKeepAlive\",grpc_type=\"bidi_stream\"} 3\n";
        assert_eq!(counted(metrics).unwrap(), 10);
    }

    #[tokio::test]
    async fn a_server_counts_two_requests_for_taking_and_releasing() {
        let set = EtcdSet::start(1, EtcdOptions::default()).await.unwrap();
        let url = format!("etcd://{}", set.hosts());
        let raw = open(&url).unwrap();
        let client = palisade::Client::builder().connect(&url).await.unwrap();
        let mutex = client.mutex("bench").unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        // What a client asks once, it may ask a moment after its first lock.
        let mut before = raw.requests().await.unwrap();
        let settled = async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let now = raw.requests().await.unwrap();
                if std::mem::replace(&mut before, now) == now {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), settled).await.expect("nothing is asked any more");
        for _ in 0..10 {
            mutex.acquire().await.unwrap().release().await.unwrap();
        }
        let after = raw.requests().await.unwrap();
        assert_eq!(before.zip(after).map(|(before, after)| after - before), Some(20));
    }

    #[tokio::test]
    async fn a_token_goes_round_and_a_lock_is_taken_over_when_its_time_is_up() {
        let set = EtcdSet::start(1, EtcdOptions::default()).await.unwrap();
        let raw = open(&format!("etcd://{}", set.hosts())).unwrap();
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
        let (held, ()) = tokio::join!(one.hold(), async { one.until_waiting().await.unwrap() });
        held.unwrap();
        one.let_go().await.unwrap();
    }
}
