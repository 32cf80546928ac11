//! Proxies between the servers of a ZooKeeper cluster.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::proxy::{Proxy, Weather};

/// A follower comes to a new leader before that one listens, and tries again five times. Let in and thrown out, it would
/// vote again instead, while the leader waits for it until its `initLimit` is over: ten seconds without a leader.
const FOLLOWERS_PATIENCE: Duration = Duration::from_secs(1);

/// One proxy for each server that looks and each that is looked for, and each of its two ports.
#[derive(Debug, Default)]
pub(super) struct Links {
    followers: Vec<Vec<Proxy>>,
    elections: Vec<Vec<Proxy>>,
    /// In front of the latter, by who looks; for those with a greater number only.
    gates: Vec<Vec<Gate>>,
}

impl Links {
    /// Between servers that listen at these ports, for followers and for elections.
    pub(super) async fn start(listen: &[(u16, u16)]) -> Result<Self> {
        let mut links = Self::default();
        for _ in listen {
            let patient = |port| Proxy::start_patient(local(port), FOLLOWERS_PATIENCE);
            links.followers.push(try_join_all(listen.iter().map(|(port, _)| patient(*port))).await?);
            let elections = listen.iter().map(|(_, port)| Proxy::start(local(*port)));
            links.elections.push(try_join_all(elections).await?);
        }
        for from in 0..listen.len() {
            let gates = (from + 1..listen.len()).map(|to| {
                Gate::start(links.elections[from][to].address(), links.elections[to][from].address())
            });
            links.gates.push(try_join_all(gates).await?);
        }
        Ok(links)
    }

    /// Where a server finds all servers: itself where it listens, the others behind their proxies.
    pub(super) fn seen_by(&self, server: usize, listen: &[(u16, u16)]) -> Vec<(u16, u16)> {
        let seen = |(at, own): (usize, &(u16, u16))| {
            if self.followers.is_empty() || at == server {
                return *own;
            }
            let elections = if at > server {
                self.gates[server][at - server - 1].address
            } else {
                self.elections[server][at].address()
            };
            (self.followers[server][at].address().port(), elections.port())
        };
        listen.iter().enumerate().map(seen).collect()
    }

    /// Turns the weather between a server and all others.
    pub(super) fn set_around(&self, server: usize, weather: Weather) {
        for links in [&self.followers, &self.elections] {
            for (from, links) in links.iter().enumerate() {
                for (to, link) in links.iter().enumerate() {
                    if from != to && (from == server || to == server) {
                        link.set(weather);
                    }
                }
            }
        }
    }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Of two servers the one with the greater number connects to the other for elections. If that one was first, it is
/// connected back to, at the address that it says is its own: a gate puts in that of a proxy.
#[derive(Debug)]
struct Gate {
    address: SocketAddr,
    task: AbortHandle,
}

impl Gate {
    /// Leads to `target`, which will come back by way of `back`.
    async fn start(target: SocketAddr, back: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut passing = JoinSet::new();
            // An accept that fails is one more connection that did not come about; servers try again.
            while let Ok((stream, _)) = listener.accept().await {
                passing.spawn(pass(stream, target, back));
                while passing.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, task: task.abort_handle() })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes on what a server says first (version, its number, its address by length), with another address, and then all
/// the rest.
async fn pass(mut from: TcpStream, target: SocketAddr, back: SocketAddr) -> io::Result<()> {
    const LONGEST: u32 = 1024;
    let (version, number, length) = (from.read_i64().await?, from.read_i64().await?, from.read_u32().await?);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut own = vec![0; length as usize];
    from.read_exact(&mut own).await?;
    let mut to = TcpStream::connect(target).await?;
    let back = back.to_string();
    let mut first = Vec::new();
    first.extend(version.to_be_bytes());
    first.extend(number.to_be_bytes());
    first.extend((back.len() as u32).to_be_bytes());
    first.extend(back.as_bytes());
    to.write_all(&first).await?;
    tokio::io::copy_bidirectional(&mut from, &mut to).await.map(drop)
}
