use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, ConnectionState, Consistency,
    Drift, Durability, Engine, Error, ErrorKind, Evicted, Fairness, FamilyScope, GoneReason, Inspection,
    Liveness, Modes, Name, Page, Profile, Raise, Reach, Reading, Renewed, Result, Selector, Signal, Signals,
    Source, SystemClock, TokenPromise, Trips, Waited, Wakeup, WatchStream, Withdrawn, Written,
};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::arrival::{Facts, arrive, warn_of_old_servers};
use crate::claims::Claims;
use crate::config::EtcdConfig;
use crate::dial::{Line, dial};
use crate::keys::Layout;
use crate::leases::{Lease, Leases};
use crate::lingering::Lingering;
use crate::link::Link;
use crate::together::Together;
use crate::watching::Ear;

/// What the etcd engine promises.
pub fn profile() -> Profile {
    Profile {
        engine: "etcd",
        reach: Reach::Network,
        consistency: Consistency::Linearizable,
        fairness: Fairness::Fifo,
        tokens: TokenPromise { source: "the cluster's revision at which a claim came", assumes: None },
        wakeup: Wakeup::Push,
        liveness: Liveness::Ttl,
        durability: Durability::Minority,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 10 },
        batch: 10_000,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// How many claims of one client find out at once who came right after them.
const SETTLING_AT_ONCE: usize = 16;

/// One client of an etcd cluster.
#[derive(Debug)]
pub struct EtcdEngine {
    pub(crate) inner: Arc<Inner>,
    /// Make the connection again, end what nobody renews, and have the end of leases told.
    tasks: [AbortHandle; 3],
}

/// What the engine shares with its tasks.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: EtcdConfig,
    pub(crate) layout: Layout,
    pub(crate) link: Link,
    pub(crate) claims: Claims,
    pub(crate) leases: Leases,
    /// Watches for those who wait again.
    pub(crate) lingering: Lingering,
    /// Takes and releases that are sent at the same time.
    pub(crate) together: Together,
    /// The one that it was opened in.
    pub(crate) runtime: tokio::runtime::Handle,
    /// Turns to find out who came right after: a thousand who come together would keep each other up.
    pub(crate) settling: tokio::sync::Semaphore,
    /// The lease for notes about claims that have ended.
    pub(crate) graves: tokio::sync::Mutex<Option<Lease>>,
    pub(crate) signals: Signals,
    /// Under which this client is told of the end of its claims.
    pub(crate) client: String,
    state: Mutex<State>,
    profile: Profile,
}

#[derive(Debug)]
struct State {
    source: Source,
    /// When the cluster was found to have gone back.
    forgot_at: Option<BootInstant>,
}

impl EtcdEngine {
    /// Connects to one of the servers, and checks that it can decide.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if none can be reached, [`ErrorKind::Denied`] if they refuse this user.
    ///
    /// # Cancel safety
    /// Safe: a connection that is half made ends with the future.
    pub async fn open(config: EtcdConfig) -> Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Invalid, "an etcd engine is opened inside a tokio runtime").because(error)
        })?;
        let inner = Arc::new(Inner {
            layout: Layout::new(&config.prefix, &config.namespace),
            link: Link::new(config.call_timeout),
            claims: Claims::default(),
            leases: Leases::default(),
            lingering: Lingering::default(),
            together: Together::default(),
            runtime: runtime.clone(),
            settling: tokio::sync::Semaphore::new(SETTLING_AT_ONCE),
            graves: tokio::sync::Mutex::default(),
            signals: Signals::new(),
            client: Uuid::new_v4().simple().to_string()[..16].to_owned(),
            state: Mutex::new(State { source: Source::new(""), forgot_at: None }),
            profile: profile(),
            config,
        });
        // Not all clients at the same server.
        let first = rand::random_range(0..inner.config.servers.len().max(1));
        let (line, facts, ear) = inner.connect(first, None).await.map_err(|error| error.on_engine("etcd"))?;
        inner.state.lock().source = facts.source;
        inner.link.seen_from(facts.revision);
        inner.link.up(1, Arc::clone(&line));
        let keeper = runtime.spawn(keep(Arc::clone(&inner), line, ear, first)).abort_handle();
        let reaper = runtime.spawn(reap(Arc::clone(&inner))).abort_handle();
        let announcing = Arc::clone(&inner);
        let announcer = runtime.spawn(async move { announcing.announce().await }).abort_handle();
        Ok(Self { inner, tasks: [keeper, reaper, announcer] })
    }
}

impl Drop for EtcdEngine {
    fn drop(&mut self) {
        self.inner.link.close();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Keeps a connection up until the engine is closed, and hears what is told to this client.
async fn keep(inner: Arc<Inner>, mut line: Arc<Line>, mut ear: Ear, mut server: usize) {
    let mut number = 1;
    tokio::spawn({
        let line = Arc::clone(&line);
        async move { warn_of_old_servers(&line).await }
    });
    loop {
        tokio::select! {
            () = inner.link.until_down(number) => {}
            () = inner.hear(number, &mut ear) => {}
        }
        // The old connection ends here, with everything that was under way on it.
        inner.lingering.clear();
        drop(line);
        if inner.link.is_closed() {
            return;
        }
        inner.signals.send(Signal::Connection(ConnectionState::Suspended));
        number += 1;
        let came_back;
        (line, ear, server, came_back) = inner.reconnect(server + 1).await;
        if !inner.return_to_service(number, &line, came_back).await {
            return;
        }
    }
}

/// Ends claims that nobody renews, though their lease goes on for others.
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
            () = inner.link.until_closed() => return,
        }
    }
}

impl Inner {
    /// Listens to what is told to this client, until that ends.
    async fn hear(&self, number: u64, ear: &mut Ear) {
        while ear.something().await.is_ok() {
            if let Err(error) = self.take_news().await {
                tracing::debug!(%error, "what was told could not be read");
            }
        }
        self.link.broken(number, "the connection was lost");
    }

    /// Makes a connection that is ready to serve, to any server, beginning with one of them.
    async fn connect(&self, first: usize, before: Option<(&Source, i64)>) -> Result<(Arc<Line>, Facts, Ear)> {
        let count = self.config.servers.len();
        let mut problem = None;
        for server in (first..first + count).map(|at| &self.config.servers[at % count]) {
            match self.connect_to(server, before).await {
                Ok(connected) => return Ok(connected),
                // What is wrong with us is wrong everywhere.
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, server, "no connection");
                    problem = Some(error);
                }
            }
        }
        Err(problem.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "no server was named")))
    }

    async fn connect_to(
        &self,
        server: &str,
        before: Option<(&Source, i64)>,
    ) -> Result<(Arc<Line>, Facts, Ear)> {
        let limit = self.config.connect_timeout;
        let arriving = async {
            let line = dial(&self.config, server).await?;
            // Asked for beside the first question: a command that takes a lock for a moment waits for little else.
            let mut ear = line.watching.under(&self.layout.client(&self.client));
            let facts = arrive(&self.config, &self.layout, &line, before).await?;
            ear.stands().await?;
            Ok((line, facts, ear))
        };
        tokio::time::timeout(limit, arriving).await.unwrap_or_else(|_| {
            let message =
                format!("{server} did not answer within {limit:?}; is it etcd, and has it a leader?");
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    /// Tries until there is a connection, with pauses in between. Says also whether the cluster went back.
    async fn reconnect(&self, mut server: usize) -> (Arc<Line>, Ear, usize, bool) {
        const FIRST_PAUSE: Duration = Duration::from_millis(5);
        const LONGEST_PAUSE: Duration = Duration::from_millis(300);
        let mut pause = FIRST_PAUSE;
        loop {
            let source = self.state.lock().source.clone();
            match self.connect(server, Some((&source, self.link.seen()))).await {
                Ok((line, facts, ear)) => {
                    if facts.went_back {
                        tracing::warn!(
                            was = %source, now = %facts.source,
                            "the cluster went back: its tokens have a new source, and all claims are lost"
                        );
                        let mut state = self.state.lock();
                        state.source = facts.source;
                        state.forgot_at = Some(SystemClock.now());
                        self.link.seen_from(facts.revision);
                    }
                    let at = self.config.servers.iter().position(|name| *name == line.server);
                    return (line, ear, at.unwrap_or(server), facts.went_back);
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection yet");
                    self.link.still_down(&error.to_string());
                }
            }
            server += 1;
            // Not all at the same moment: a server that comes back has enough to do.
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells what was lost meanwhile, then that all is well again. `false` if the engine was closed.
    async fn return_to_service(&self, number: u64, line: &Arc<Line>, went_back: bool) -> bool {
        if went_back {
            for lease in self.live_leases() {
                self.lease_is_over(&lease);
            }
            for claim in self.claims.live() {
                self.is_gone(claim, GoneReason::SessionLost);
            }
            *self.graves.lock().await = None;
        }
        if !self.link.up(number, Arc::clone(line)) {
            return false;
        }
        // What was told meanwhile was told to nobody.
        if let Err(error) = self.take_news().await {
            tracing::debug!(%error, "what was told could not be read");
        }
        self.signals.send(Signal::Connection(ConnectionState::Reconnected));
        self.claims.wake_all();
        true
    }

    /// Notes that a claim is no more, and tells its client if it was held.
    pub(crate) fn is_gone(&self, claim: ClaimId, reason: GoneReason) {
        if self.claims.gone(claim, reason.clone()) {
            self.signals.send(Signal::Gone { claim, reason });
        }
    }

    /// Deletes a claim that was not renewed in time; until its lease is no more, at the latest.
    async fn end_lapsed(self: &Arc<Self>, known: &crate::claims::Knowledge) {
        const PAUSE: Duration = Duration::from_millis(100);
        while let Err(error) = self.remove(&known.claim, known).await {
            if self.link.is_closed() || !error.is_transient() || known.seat.lease.is_over() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.is_gone(known.claim.id, GoneReason::Expired);
    }
}

#[async_trait]
impl Engine for EtcdEngine {
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
        let written = self.inner.write(register, Some(&value), condition, expires_in).await;
        written.map_err(|error| error.about(register))
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.inner.write(register, None, condition, None).await.map_err(|error| error.about(register))
    }

    async fn close(&self) {
        if !self.inner.link.is_closed() {
            self.inner.give_leases_back().await;
        }
        self.inner.link.close();
        self.inner.claims.wake_all();
    }
}
