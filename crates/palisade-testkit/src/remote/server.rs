use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use palisade_core::memory::{MemoryEngine, MemoryStore};
use palisade_core::{
    BootInstant, Claim, ClaimId, Claimed, Clock, Engine, Error, ErrorKind, Result, Source, SystemClock,
    Token, Ttl, Withdrawn,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::serving;
use super::tombs::Tombs;

/// How a server starts.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// What its tokens are called; a name of its own, unless set.
    pub source: Option<String>,
    /// Its tokens lie above those of all smaller epochs. A server that follows another under the
    /// same source without a greater epoch grants tokens twice: a fault for a checker to find.
    pub epoch: u32,
    /// For how long it grants nothing at first. A server forgets its claims when it ends; their
    /// holders are safe if its successor is silent for their longest TTL.
    pub grace: Duration,
}

impl ServerOptions {
    /// How many tokens an epoch has.
    const EPOCH: u64 = 1 << 30;

    fn store(&self) -> MemoryStore {
        let source = self.source.clone().unwrap_or_else(|| format!("remote-{}", ClaimId::random()));
        let last = u64::from(self.epoch).saturating_mul(Self::EPOCH).min(Token::MAX / 2);
        MemoryStore::succeeding(Arc::new(SystemClock), Source::new(source), last)
    }
}

/// Serves a store of its own to all who connect, for ever.
///
/// # Errors
/// The listener is broken.
pub async fn serve(listener: TcpListener, options: ServerOptions) -> io::Result<()> {
    /// No descriptor may be free for a moment; trying again at once would only spin.
    const PAUSE: Duration = Duration::from_millis(10);
    listener.local_addr()?;
    let server = Arc::new(Server::new(&options));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serving::serve(stream, Arc::clone(&server)));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Server {
    store: MemoryStore,
    opens: BootInstant,
    /// By namespace and the client's own name for it.
    sessions: Mutex<HashMap<(String, String), Session>>,
    /// Locked over a whole claim or withdrawal, so that the two cannot pass each other.
    tombs: Mutex<Tombs>,
}

/// One client over all its connections: the claims it made tell *it* when they end.
#[derive(Debug)]
struct Session {
    engine: Arc<MemoryEngine>,
    seen: BootInstant,
}

impl Server {
    fn new(options: &ServerOptions) -> Self {
        Self {
            store: options.store(),
            opens: SystemClock.now() + options.grace,
            sessions: Mutex::default(),
            tombs: Mutex::default(),
        }
    }

    /// The session called `name`, as it was left or new.
    pub(super) fn session(&self, namespace: String, name: String) -> Arc<MemoryEngine> {
        let now = SystemClock.now();
        let mut sessions = self.sessions.lock();
        // A client that has not been seen for the longest TTL has no claims any more.
        sessions.retain(|_, session| {
            Arc::strong_count(&session.engine) > 1 || now.saturating_since(session.seen) < Ttl::MAX
        });
        let engine = || Arc::new(self.store.connect(&namespace));
        let fresh = Session { engine: engine(), seen: now };
        let session = sessions.entry((namespace, name)).or_insert(fresh);
        session.seen = now;
        Arc::clone(&session.engine)
    }

    pub(super) fn claim(&self, engine: &MemoryEngine, claim: &Arc<Claim>) -> Result<Claimed> {
        if SystemClock.now() < self.opens {
            let message = "the server has just started, and waits for the claims of the one before to end";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let tombs = self.tombs.lock();
        if tombs.holds(claim.id) {
            return Err(Error::new(ErrorKind::Lost, "the claim was withdrawn").about(&claim.resource));
        }
        at_once(engine.claim(claim))
    }

    pub(super) fn withdraw(&self, engine: &MemoryEngine, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        let (mut tombs, now) = (self.tombs.lock(), SystemClock.now());
        for claim in claims {
            tombs.bury(claim.id, now);
        }
        at_once(engine.withdraw(claims))
    }
}

/// The outcome of a verb that the memory engine decides without a pause.
fn at_once<T>(verb: impl Future<Output = Result<T>>) -> Result<T> {
    verb.now_or_never().unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "the memory engine paused")))
}
