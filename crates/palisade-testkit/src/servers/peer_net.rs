use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// The network between the servers of one etcd cluster, in which any of them can be cut off from the others.
///
/// All servers must name each other alike, so that they cannot be given a line each: who calls is read from the
/// head of the first request. Calls that do not say it (for versions, and followers' keep-alives on their way to a
/// leader) are cut only on their way *to* a server that is cut off.
#[derive(Debug)]
pub(super) struct PeerNet {
    addresses: Vec<SocketAddr>,
    state: watch::Sender<State>,
    /// Ends its thread when dropped. A thread of its own, because whoever starts servers may leave their runtime.
    _end: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Which server has which id.
    ids: HashMap<String, usize>,
    cut_off: HashSet<usize>,
}

impl State {
    fn keeps_apart(&self, from: Option<&String>, to: usize) -> bool {
        let from = from.and_then(|id| self.ids.get(id));
        self.cut_off.contains(&to) || from.is_some_and(|from| self.cut_off.contains(from))
    }
}

impl PeerNet {
    /// Listens for the servers that are at `targets`.
    pub(super) fn start(targets: &[SocketAddr]) -> Result<Self> {
        let bind = |_| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listeners = targets.iter().map(bind).collect::<Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(|listener| Ok(listener.local_addr()?)).collect::<Result<_>>()?;
        let (state, (end, ended)) = (watch::Sender::new(State::default()), oneshot::channel());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (targets, heard) = (targets.to_vec(), state.subscribe());
        let work = move || {
            runtime.block_on(async {
                let servers = listeners.into_iter().zip(targets).enumerate();
                let mut all: JoinSet<()> = servers
                    .filter_map(|(place, (listener, target))| {
                        let listener = TcpListener::from_std(listener).ok()?;
                        Some(accept(listener, place, target, heard.clone()))
                    })
                    .collect();
                tokio::select! {
                    _ = ended => {}
                    _ = all.join_next() => {}
                }
            });
        };
        thread::Builder::new().name("etcd-peers".to_owned()).spawn(work).context("no thread")?;
        Ok(Self { addresses, state, _end: end })
    }

    /// Where each server is called by the others.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Notes the ids that the servers call themselves by.
    pub(super) fn know(&self, ids: HashMap<String, usize>) {
        self.state.send_modify(|state| state.ids = ids);
    }

    /// Nothing comes from a server or to it any more, and nobody is told.
    pub(super) fn cut_off(&self, place: usize) {
        self.state.send_modify(|state| {
            state.cut_off.insert(place);
        });
    }

    /// Ends that; what was under way is lost.
    pub(super) fn rejoin(&self, place: usize) {
        self.state.send_modify(|state| {
            state.cut_off.remove(&place);
        });
    }
}

async fn accept(listener: TcpListener, place: usize, target: SocketAddr, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((caller, _)) = accepted {
                    connections.spawn(carry(caller, place, target, state.clone()));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Carries one connection until it ends, or one of its ends is cut off: then it stays silent until that is over.
async fn carry(mut caller: TcpStream, to: usize, target: SocketAddr, mut state: watch::Receiver<State>) {
    let from = who_calls(&caller).await;
    let mut cut = state.clone();
    let apart = |state: &State| state.keeps_apart(from.as_ref(), to);
    let carried = async {
        if let Ok(mut server) = TcpStream::connect(target).await {
            let _ = copy_bidirectional(&mut caller, &mut server).await;
        }
    };
    let silenced = tokio::select! {
        biased;
        _ = cut.wait_for(apart) => true,
        () = carried => false,
    };
    if silenced {
        let _ = state.wait_for(|state| !apart(state)).await;
    }
}

/// The id of the server that calls, if it says so.
async fn who_calls(caller: &TcpStream) -> Option<String> {
    const PAUSE: Duration = Duration::from_millis(1);
    const TRIES: usize = 1000;
    let mut head = [0; 2048];
    for _ in 0..TRIES {
        let length = caller.peek(&mut head).await.ok()?;
        let text = String::from_utf8_lossy(&head[..length]);
        if text.contains("\r\n\r\n") || length == head.len() || length == 0 {
            let name = text.lines().find_map(|line| line.strip_prefix("X-Server-From: "));
            return name.map(|name| name.trim().to_owned());
        }
        // More of the head is on its way: a look does not wait for it.
        tokio::time::sleep(PAUSE).await;
    }
    None
}
