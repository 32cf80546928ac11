//! A TCP proxy that loses, delays and cuts, to be put between a client and a server.
//!
//! It works on live connections: a test lets a claim in, turns the weather, and looks at what the
//! client believes. What it holds back is bounded; a sender that sends more is held up itself.

mod connection;
mod pipe;
#[cfg(test)]
mod tests;
mod weather;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use self::weather::Sky;
pub use self::weather::{Direction, Weather};

/// A proxy in front of one server. Dropping it closes its port and all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    sky: watch::Sender<Sky>,
    target: Mutex<SocketAddr>,
    /// How long a server is waited for that does not listen yet.
    patience: Duration,
    /// What the next connection draws its jitter from.
    seed: AtomicU64,
    connections: AtomicUsize,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Proxy {
    /// Starts a proxy to `target` on a free port of this host.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_seeded(target, 0).await
    }

    /// As [`Proxy::start`], for clients that try again for a moment where nobody listens yet, and not where they are
    /// let in and thrown out again: waits that long for the server in their stead.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start_patient(target: SocketAddr, patience: Duration) -> io::Result<Self> {
        Self::start_with(target, 0, patience).await
    }

    /// As [`Proxy::start`]; the same seed gives the same jitter.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start_seeded(target: SocketAddr, seed: u64) -> io::Result<Self> {
        Self::start_with(target, seed, Duration::ZERO).await
    }

    async fn start_with(target: SocketAddr, seed: u64, patience: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            sky: watch::Sender::new(Sky::clear()),
            target: Mutex::new(target),
            patience,
            seed: AtomicU64::new(seed),
            connections: AtomicUsize::new(0),
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { address, shared, task })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends new connections elsewhere: to a server that came back on another port.
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Turns the weather, for live and new connections at once.
    pub fn set(&self, weather: Weather) {
        self.shared.sky.send_modify(|sky| sky.turn(weather));
    }

    /// The weather now: [`Weather::CutAfterForwarding`] clears up by itself.
    pub fn weather(&self) -> Weather {
        self.shared.sky.borrow().weather
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How many bytes have passed, to the server and to clients.
    pub fn bytes(&self) -> (u64, u64) {
        (self.shared.to_server.load(Ordering::Relaxed), self.shared.to_client.load(Ordering::Relaxed))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The task owns the listener and all connections.
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    /// No descriptor may be free for a moment; trying again at once would only spin.
    const PAUSE: Duration = Duration::from_millis(10);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(connection::carry(client, Arc::clone(&shared)));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}
