use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, ConnectionState, Consistency,
    Drift, Durability, Engine, Error, ErrorKind, Evicted, Fairness, FamilyScope, GoneReason, Inspection,
    Liveness, Modes, Name, Page, Profile, Raise, Reach, Reading, Renewed, Result, Selector, Signal, Signals,
    Source, SystemClock, TokenPromise, Trips, Ttl, Waited, Wakeup, WatchStream, Withdrawn, Written,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::claims::{Claims, Knowledge};
use crate::config::ZooKeeperConfig;
use crate::conn::{Conn, Ear};
use crate::keys::Layout;
use crate::session::{Servers, Session};
use crate::sessions::{Sessions, timeout};

/// What the ZooKeeper engine promises.
pub fn profile() -> Profile {
    Profile {
        engine: "zookeeper",
        reach: Reach::Network,
        consistency: Consistency::Linearizable,
        fairness: Fairness::Fifo,
        tokens: TokenPromise { source: "the transaction that made a claim's node (czxid)", assumes: None },
        wakeup: Wakeup::Push,
        liveness: Liveness::Session,
        durability: Durability::Minority,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: false,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 10 },
        batch: 10_000,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// One client of a ZooKeeper cluster.
#[derive(Debug)]
pub struct ZooKeeperEngine {
    pub(crate) inner: Arc<Inner>,
    /// Keep the main session, and end what nobody renews.
    tasks: [AbortHandle; 2],
}

/// What the engine shares with its tasks.
pub(crate) struct Inner {
    pub(crate) servers: Arc<Servers>,
    pub(crate) layout: Layout,
    pub(crate) claims: Claims,
    pub(crate) sessions: Sessions,
    pub(crate) signals: Signals,
    /// Under which this client is told of the end of its claims.
    pub(crate) client: String,
    main: Mutex<Arc<Session>>,
    state: Mutex<State>,
    closed: watch::Sender<bool>,
    profile: Profile,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("client", &self.client).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    source: Source,
    /// When the cluster was found to have gone back.
    forgot_at: Option<BootInstant>,
}

impl ZooKeeperEngine {
    /// Connects to one of the servers, and checks that it can decide.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if none can be reached, [`ErrorKind::Denied`] if they refuse this user.
    ///
    /// # Cancel safety
    /// Safe: a connection that is half made ends with the future.
    pub async fn open(config: ZooKeeperConfig) -> Result<Self> {
        Self::open_here(config).await.map_err(|error| error.on_engine("zookeeper"))
    }

    async fn open_here(config: ZooKeeperConfig) -> Result<Self> {
        tokio::runtime::Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Invalid, "a ZooKeeper engine is opened inside a tokio runtime")
                .because(error)
        })?;
        let layout = Layout::new(&config);
        let servers = Arc::new(Servers::new(config)?);
        let session = Session::open(&servers, timeout(Ttl::default())).await?;
        let inner = Arc::new(Inner {
            servers,
            layout,
            claims: Claims::default(),
            sessions: Sessions::default(),
            signals: Signals::new(),
            client: Uuid::new_v4().simple().to_string()[..16].to_owned(),
            main: Mutex::new(Arc::clone(&session)),
            state: Mutex::new(State { source: Source::new(""), forgot_at: None }),
            closed: watch::Sender::new(false),
            profile: profile(),
        });
        // From here on a failure, or a drop, must not leave the session behind.
        let opening = Opening(Some(Arc::clone(&session)));
        let conn = session.conn().await?;
        let facts = inner.arrive(&session, None).await?;
        inner.state.lock().source = facts.source;
        let ear = inner.listen_to_news(&session, &conn).await?;
        let keeper = tokio::spawn(keep(Arc::clone(&inner), session, conn, ear)).abort_handle();
        let reaper = tokio::spawn(reap(Arc::clone(&inner))).abort_handle();
        opening.done();
        Ok(Self { inner, tasks: [keeper, reaper] })
    }
}

/// Lets go of a session unless all went well.
struct Opening(Option<Arc<Session>>);

impl Opening {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.abandon();
        }
    }
}

impl Drop for ZooKeeperEngine {
    fn drop(&mut self) {
        self.inner.closed.send_replace(true);
        self.inner.abandon_sessions();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Follows the main session from connection to connection, and makes another one when it is over.
async fn keep(inner: Arc<Inner>, mut session: Arc<Session>, mut conn: Arc<Conn>, mut ear: Arc<Ear>) {
    loop {
        tokio::select! {
            () = inner.hear(&ear) => {}
            () = session.until_down(conn.number) => {}
            () = inner.until_closed() => return,
        }
        drop(conn);
        if inner.is_closed() {
            return;
        }
        inner.signals.send(Signal::Connection(ConnectionState::Suspended));
        loop {
            match inner.return_to_service(&mut session).await {
                Ok((next, listening)) => {
                    (conn, ear) = (next, listening);
                    break;
                }
                Err(error) => tracing::debug!(%error, "not in service yet"),
            }
            if inner.is_closed() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        inner.signals.send(Signal::Connection(ConnectionState::Reconnected));
        inner.claims.wake_all();
    }
}

/// Before the next try, where the last one failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Ends claims that nobody renews, though their session goes on for others.
async fn reap(inner: Arc<Inner>) {
    loop {
        let (lapsed, next) = inner.claims.lapsed(SystemClock.now());
        for known in lapsed {
            let inner = Arc::clone(&inner);
            tokio::spawn(async move { inner.end_lapsed(&known).await });
        }
        tokio::select! {
            () = SystemClock.sleep_until(next) => {}
            () = inner.claims.sooner.notified() => {}
            () = inner.until_closed() => return,
        }
    }
}

impl Inner {
    /// The session for all that is no claim's own.
    pub(crate) fn main(&self) -> Arc<Session> {
        Arc::clone(&self.main.lock())
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Completes once the engine is closed.
    pub(crate) async fn until_closed(&self) {
        let mut closed = self.closed.subscribe();
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Listens to what is told to this client, until that ends.
    async fn hear(&self, ear: &Ear) {
        while ear.something().await.is_ok() {
            if let Err(error) = self.take_news().await {
                tracing::debug!(%error, "what was told could not be read");
            }
        }
    }

    /// Makes the next connection ready to serve, of another session if the last one is over.
    async fn return_to_service(&self, session: &mut Arc<Session>) -> Result<(Arc<Conn>, Arc<Ear>)> {
        if session.is_over() {
            let seen = session.zxid();
            let new = Session::open(&self.servers, timeout(Ttl::default())).await?;
            let opening = Opening(Some(Arc::clone(&new)));
            let source = self.state.lock().source.clone();
            let facts = self.arrive(&new, Some((&source, seen))).await?;
            if facts.went_back {
                tracing::warn!(
                    was = %source, now = %facts.source,
                    "the cluster went back: its tokens have a new source"
                );
                let mut state = self.state.lock();
                state.source = facts.source;
                state.forgot_at = Some(SystemClock.now());
            }
            if self.is_closed() {
                return Err(crate::error::closed());
            }
            opening.done();
            *self.main.lock() = Arc::clone(&new);
            *session = new;
        }
        let conn = session.conn().await?;
        let ear = self.listen_to_news(session, &conn).await?;
        // What was told meanwhile was told to nobody.
        self.take_news().await?;
        Ok((conn, ear))
    }

    /// Notes that a claim is no more, and tells its client if it was held.
    pub(crate) fn is_gone(&self, claim: ClaimId, reason: GoneReason) {
        if self.claims.gone(claim, reason.clone()) {
            self.signals.send(Signal::Gone { claim, reason });
        }
    }

    /// Deletes a claim that was not renewed in time; until its session is no more, at the latest.
    async fn end_lapsed(&self, known: &Knowledge) {
        // Whoever is about to send it finishes first: what comes later would be nobody's.
        let _turn = known.gate.lock().await;
        while let Some(known) = self.claims.get(known.claim.id).filter(|known| !known.is_gone()) {
            let Err(error) = self.remove(&known).await else { break };
            if self.is_closed() || !error.is_transient() || known.seat.session.is_over() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.is_gone(known.claim.id, GoneReason::Expired);
    }
}

#[async_trait]
impl Engine for ZooKeeperEngine {
    fn profile(&self) -> &Profile {
        &self.inner.profile
    }

    fn source(&self) -> Source {
        self.inner.state.lock().source.clone()
    }

    fn signals(&self) -> &Signals {
        &self.inner.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        self.inner.state.lock().forgot_at
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.inner.claim(claim).await.map_err(|error| error.about(&claim.resource))
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        self.inner.wait(claim).await.map_err(|error| error.about(&claim.resource))
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.inner.change(claim, change).await.map_err(|error| error.about(&claim.resource))
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.inner.renew(claims).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.inner.withdraw(claims).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.inner.inspect(selector, page).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.inner.evict(resource, claim, reason).await.map_err(|error| error.about(resource))
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        crate::watch::watch(&self.inner, selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.inner.read(register, raise).await.map_err(|error| error.about(register))
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        if expires_in.is_some() {
            let message = "ZooKeeper's registers do not expire: its own nodes with a TTL need a server that allows them";
            return Err(Error::new(ErrorKind::Unsupported, message).about(register));
        }
        self.inner.write(register, Some(&value), condition).await.map_err(|error| error.about(register))
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.inner.write(register, None, condition).await.map_err(|error| error.about(register))
    }

    async fn close(&self) {
        if !self.inner.closed.send_replace(true) {
            self.inner.close_sessions().await;
        }
        self.inner.claims.wake_all();
    }
}
