//! Nodes that can be made slow, dead, forgetful or wrong about the time.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt};
use palisade_core::memory::{MemoryEngine, MemoryStore};
use palisade_core::{
    BootInstant, Claim, ClaimId, Claimed, Clock, Engine, Error, ErrorKind, Evicted, Grant, Inspection, Layer,
    Mode, Name, Owner, Page, Renewed, Result, Selector, Source, Token, Ttl, Waited, Withdrawn,
};
use palisade_quorum::{Node, QuorumConfig, QuorumEngine};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

thread_local! {
    static START: Instant = Instant::now();
}

/// The time of the test's runtime. It is paused in all tests here, and moves on by itself once all wait: a machine
/// that stands still for a second changes nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuntimeClock;

impl Clock for RuntimeClock {
    fn now(&self) -> BootInstant {
        // Each test is a thread with a runtime of its own, and begins an hour after boot.
        BootInstant::from_nanos(3_600_000_000_000) + START.with(Instant::elapsed)
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()> {
        let clock = *self;
        async move { tokio::time::sleep(deadline.saturating_since(clock.now())).await }.boxed()
    }
}

/// The test's clock, set wrong.
#[derive(Debug, Default)]
pub(crate) struct WrongClock(AtomicU64);

impl WrongClock {
    pub(crate) fn jump(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for WrongClock {
    fn now(&self) -> BootInstant {
        RuntimeClock.now() + Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()> {
        RuntimeClock
            .sleep_until(deadline.saturating_sub(Duration::from_nanos(self.0.load(Ordering::Relaxed))))
    }
}

/// A server, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    clock: Arc<dyn Clock>,
    source: Source,
    store: Mutex<MemoryStore>,
    /// Counts its restarts; who is connected notices.
    lives: watch::Sender<u64>,
    forgot: Mutex<Option<BootInstant>>,
    /// Answers nothing.
    pub(crate) silent: AtomicBool,
    /// Refuses everything.
    pub(crate) dead: AtomicBool,
    /// How long a request takes, in microseconds.
    pub(crate) delay: AtomicU64,
    pub(crate) requests: AtomicU64,
}

impl Server {
    pub(crate) fn new(at: usize) -> Arc<Self> {
        Self::on(at, Arc::new(RuntimeClock))
    }

    pub(crate) fn on(at: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let source = Source::new(format!("server {at}"));
        Arc::new(Self {
            name: format!("server {at}"),
            store: Mutex::new(MemoryStore::succeeding(Arc::clone(&clock), source.clone(), 0)),
            clock,
            source,
            lives: watch::Sender::new(0),
            forgot: Mutex::default(),
            silent: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            delay: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        })
    }

    /// Loses everything, the tokens included.
    pub(crate) fn wipe(&self) {
        *self.forgot.lock() = Some(RuntimeClock.now());
        *self.store.lock() = MemoryStore::succeeding(Arc::clone(&self.clock), self.source.clone(), 0);
        self.lives.send_modify(|lives| *lives += 1);
    }

    /// Says that it lost everything so long ago.
    pub(crate) fn forgot_before(&self, ago: Duration) {
        *self.forgot.lock() = Some(RuntimeClock.now().saturating_sub(ago));
    }

    /// All claims that the server knows.
    pub(crate) async fn claims(&self) -> usize {
        let engine = self.store.lock().connect("");
        let seen = engine.inspect(&Selector::resources(""), &Page::default()).await.unwrap();
        seen.resources.iter().map(|view| view.holders.len() + view.waiters.len()).sum()
    }

    pub(crate) fn node(self: &Arc<Self>) -> Node {
        let server = Arc::clone(self);
        Node {
            name: self.name.clone(),
            open: Arc::new(move || {
                let server = Arc::clone(&server);
                async move {
                    if server.dead.load(Ordering::Relaxed) {
                        return Err(Error::new(ErrorKind::Unavailable, "connection refused"));
                    }
                    let connection: Arc<dyn Engine> = Arc::new(Connection::to(&server, false));
                    tokio::time::sleep(Duration::from_micros(server.delay.load(Ordering::Relaxed))).await;
                    Ok(connection)
                }
                .boxed()
            }),
        }
    }

    /// As [`Server::node`], but this client's requests are lost on the way.
    pub(crate) fn out_of_reach(self: &Arc<Self>) -> Node {
        let server = Arc::clone(self);
        let open = move || {
            let connection: Arc<dyn Engine> = Arc::new(Connection::to(&server, true));
            async move { Ok(connection) }.boxed()
        };
        Node { name: self.name.clone(), open: Arc::new(open) }
    }
}

#[derive(Debug)]
struct Connection {
    server: Arc<Server>,
    cut: bool,
    first: Arc<MemoryEngine>,
    /// To the server in its present life.
    now: Mutex<(u64, Arc<MemoryEngine>)>,
}

impl Connection {
    fn to(server: &Arc<Server>, cut: bool) -> Self {
        let store = server.store.lock().clone();
        let first = Arc::new(store.connect(""));
        let now = Mutex::new((*server.lives.borrow(), Arc::clone(&first)));
        Self { server: Arc::clone(server), cut, first, now }
    }

    /// The way to the server, if it answers.
    async fn reach(&self) -> Result<Arc<MemoryEngine>> {
        self.server.requests.fetch_add(1, Ordering::Relaxed);
        if self.cut || self.server.silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match self.server.delay.load(Ordering::Relaxed) {
            0 => {}
            // A request takes its time on the way and back, during which others get in between.
            micros => tokio::time::sleep(Duration::from_micros(micros)).await,
        }
        if self.server.dead.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "connection refused"));
        }
        Ok(self.engine())
    }

    fn engine(&self) -> Arc<MemoryEngine> {
        let life = *self.server.lives.borrow();
        let mut now = self.now.lock();
        if now.0 != life {
            *now = (life, Arc::new(self.server.store.lock().connect("")));
        }
        Arc::clone(&now.1)
    }
}

#[async_trait]
impl Layer for Connection {
    fn inner(&self) -> &dyn Engine {
        &*self.first
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        *self.server.forgot.lock()
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.reach().await?.claim(claim).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let mut lives = self.server.lives.subscribe();
        if self.cut {
            std::future::pending::<()>().await;
        }
        let engine = self.engine();
        tokio::select! {
            waited = engine.wait(claim) => waited,
            _ = lives.changed() => Err(Error::new(ErrorKind::Unavailable, "the connection was lost")),
        }
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.reach().await?.renew(claims).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.reach().await?.withdraw(claims).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.reach().await?.inspect(selector, page).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.reach().await?.evict(resource, claim, reason).await
    }
}

pub(crate) fn servers(count: usize) -> Vec<Arc<Server>> {
    (0..count).map(Server::new).collect()
}

pub(crate) fn config(servers: &[Arc<Server>]) -> QuorumConfig {
    QuorumConfig::new(servers.iter().map(Server::node).collect())
}

pub(crate) async fn open(servers: &[Arc<Server>]) -> QuorumEngine {
    open_as(config(servers)).await
}

pub(crate) async fn open_as(config: QuorumConfig) -> QuorumEngine {
    QuorumEngine::open_on(config, Arc::new(RuntimeClock)).await.unwrap()
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn claim(resource: &str, ttl: Duration) -> Claim {
    Claim::new(name(resource), Mode::Exclusive, Ttl::new(ttl).unwrap(), Arc::new(Owner::this_process()))
}

/// A claim that expires only if a test takes for ever.
pub(crate) fn long(resource: &str) -> Arc<Claim> {
    Arc::new(claim(resource, Duration::from_secs(25)))
}

pub(crate) async fn take(engine: &dyn Engine, claim: &Arc<Claim>) -> Grant {
    match engine.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => grant,
        other => panic!("it should have been granted, but is {other:?}"),
    }
}

/// Takes it in whatever time that needs.
pub(crate) async fn acquire(engine: &dyn Engine, claim: &Arc<Claim>) -> Grant {
    match engine.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => grant,
        Claimed::Queued(_) => match engine.wait(claim).await.unwrap() {
            Waited::Granted(grant) => grant,
            Waited::Gone(reason) => panic!("gone while it waited: {reason:?}"),
        },
        Claimed::Busy(_) => panic!("a claim that will wait was turned away"),
    }
}

pub(crate) async fn release(engine: &dyn Engine, claim: &Arc<Claim>) -> Withdrawn {
    engine.withdraw(std::slice::from_ref(claim)).await.unwrap()[0]
}

pub(crate) async fn once(engine: &dyn Engine, resource: &str) -> Token {
    let claim = long(resource);
    let token = take(engine, &claim).await.token;
    assert_eq!(release(engine, &claim).await, Withdrawn::Released);
    token
}

/// Waits until no server knows any claim.
pub(crate) async fn nothing_left(servers: &[Arc<Server>]) {
    eventually("nothing to be left", || async {
        let mut left = 0;
        for server in servers {
            left += server.claims().await;
        }
        left == 0
    })
    .await;
}

/// Waits for a condition, within a bound.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = RuntimeClock.now() + Duration::from_secs(10);
    while !holds().await {
        assert!(RuntimeClock.now() < end, "10 s were not enough for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
