use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, ConnectionState, Consistency,
    Drift, Durability, Engine, Error, ErrorKind, Evicted, Fairness, FamilyScope, Gather, GoneReason,
    Inspection, Liveness, Modes, Name, Page, Profile, Raise, Reach, Reading, Renewed, Result, Selector,
    Signal, Signals, Source, SystemClock, TokenPromise, Trips, Waited, Wakeup, WatchStream, Withdrawn,
    Written,
};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::arrival::{Facts, RIGHTS, arrive};
use crate::claims::Claims;
use crate::config::{RedisConfig, Servers};
use crate::counter::Counter;
use crate::dial::{Line, dial};
use crate::foreign::Foreign;
use crate::keys::Layout;
use crate::link::Link;
use crate::record::Records;
use crate::script::Scripts;
use crate::verbs::Said;

/// What the Redis engine promises.
pub fn profile() -> Profile {
    Profile {
        engine: "redis",
        reach: Reach::Network,
        consistency: Consistency::UntilFailover,
        fairness: Fairness::Fifo,
        tokens: TokenPromise {
            source: "a counter on the server, at least its time in microseconds",
            assumes: Some("that the server's clock does not step back when the server loses data"),
        },
        wakeup: Wakeup::Push,
        liveness: Liveness::Ttl,
        durability: Durability::Settings,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 10 },
        batch: 500,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// One client of a Redis server, of the primary of a Sentinel service, or of a Cluster.
#[derive(Debug)]
pub struct RedisEngine {
    pub(crate) inner: Arc<Inner>,
    /// Makes the connection again whenever it breaks.
    keeper: AbortHandle,
}

/// What the engine shares with its tasks.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: RedisConfig,
    pub(crate) layout: Layout,
    pub(crate) scripts: Scripts,
    pub(crate) link: Link,
    pub(crate) claims: Claims,
    pub(crate) claiming: Gather<Arc<Claim>, Result<Said>>,
    pub(crate) withdrawing: Gather<Arc<Claim>, Result<Withdrawn>>,
    pub(crate) foreign: Foreign,
    pub(crate) signals: Signals,
    /// Where this client is told of its turns.
    pub(crate) client: String,
    pub(crate) records: Records,
    facts: Mutex<Facts>,
    pub(crate) profile: Profile,
}

impl RedisEngine {
    /// Connects as `config` says, and checks that the server can be trusted with locks.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if it cannot be reached, [`ErrorKind::Denied`] if it refuses this user,
    /// [`ErrorKind::Unsupported`] if it may evict locks, is a replica, or is too old.
    ///
    /// # Cancel safety
    /// Safe: a connection that is half made ends with the future.
    pub async fn open(config: RedisConfig) -> Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Invalid, "a Redis engine is opened inside a tokio runtime").because(error)
        })?;
        let single = !matches!(config.servers, Servers::Cluster(_));
        let nothing = Facts {
            source: Source::new(""),
            forgot_at: None,
            tracks: false,
            here: None,
            takes_bare: false,
            address: None,
        };
        let inner = Arc::new(Inner {
            layout: Layout::new(&config.key, config.dialect, &config.namespace, single),
            scripts: Scripts::new(config.dialect, single),
            link: Link::new(config.call_timeout),
            claims: Claims::default(),
            claiming: Gather::default(),
            withdrawing: Gather::default(),
            foreign: Foreign::default(),
            signals: Signals::new(),
            client: Uuid::new_v4().simple().to_string(),
            records: Records::default(),
            facts: Mutex::new(nothing),
            profile: profile(),
            config,
        });
        let (line, facts) = inner.connect(1, None).await.map_err(|error| error.on_engine("redis"))?;
        inner.link.up(1, line.clone(), Counter::new(facts.takes_bare));
        *inner.facts.lock() = facts;
        let keeper = runtime.spawn(keep(Arc::clone(&inner), line)).abort_handle();
        Ok(Self { inner, keeper })
    }
}

impl Drop for RedisEngine {
    fn drop(&mut self) {
        self.inner.link.close();
        self.keeper.abort();
    }
}

/// Keeps a connection up until the engine is closed.
async fn keep(inner: Arc<Inner>, mut line: Line) {
    let mut number = 1;
    loop {
        let in_use = || !inner.claims.is_empty();
        tokio::select! {
            () = inner.link.until_down(number) => {}
            () = inner.link.watch_over(line.clone(), in_use) => {
                inner.link.broken(number, "the server did not answer in time");
            }
            () = inner.is_deposed() => inner.link.broken(number, "another server is the primary now"),
        }
        // The old connection ends here, with everything that was under way on it.
        drop(line);
        if inner.link.is_closed() {
            return;
        }
        inner.signals.send(Signal::Connection(ConnectionState::Suspended));
        line = loop {
            number += 1;
            let mut line = inner.reconnect(number).await;
            // A connection that does not get as far as this is none.
            let looking = inner.lost_meanwhile(&mut line);
            if let Ok(lost) = tokio::time::timeout(inner.config.call_timeout, looking).await {
                if !inner.return_to_service(number, &line, lost) {
                    return;
                }
                break line;
            }
        };
    }
}

impl Inner {
    pub(crate) fn facts(&self) -> Facts {
        self.facts.lock().clone()
    }

    /// Makes a connection that is ready to serve.
    async fn connect(self: &Arc<Self>, number: u64, known: Option<&Source>) -> Result<(Line, Facts)> {
        let weak = Arc::downgrade(self);
        let on_push = Arc::new(move |info| {
            if let Some(inner) = weak.upgrade() {
                inner.hear(number, info);
            }
        });
        let arriving = async {
            let (mut line, address) = dial(&self.config, on_push).await?;
            let channel = format!("palisade:wake:{}", self.client);
            line.subscribe(&channel).await.map_err(|error| self.cannot_subscribe(error))?;
            let mut facts = arrive(&self.config, &self.layout, &self.scripts, &mut line, known).await?;
            facts.address = address;
            // What was sent over the last connection comes before all that this one is asked, or never.
            match (self.facts().here, &facts.here) {
                (Some(last), Some(now)) => last.end(&mut line, now).await?,
                // The next one may be able to.
                (Some(last), None) => facts.here = Some(last),
                (None, _) => {}
            }
            Ok((line, facts))
        };
        let limit = self.config.connect_timeout * 3;
        tokio::time::timeout(limit, arriving).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("the server did not answer within {limit:?}")))
        })
    }

    fn cannot_subscribe(&self, error: redis::RedisError) -> Error {
        if error.code() != Some("NOPERM") {
            return crate::error::failed(error);
        }
        let user = self.config.login.user.as_deref().unwrap_or("default");
        let message = format!("user {user:?} may not listen for its turn; grant it: {RIGHTS}");
        Error::new(ErrorKind::Denied, message)
    }

    /// Tries until there is a connection, with pauses in between.
    async fn reconnect(self: &Arc<Self>, number: u64) -> Line {
        const FIRST_PAUSE: Duration = Duration::from_millis(5);
        const LONGEST_PAUSE: Duration = Duration::from_millis(500);
        let known = self.facts().source;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect(number, Some(&known)).await {
                Ok((line, facts)) => {
                    *self.facts.lock() = facts;
                    return line;
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection yet");
                    self.link.still_down(&error.to_string());
                }
            }
            // Not all at the same moment: a server that comes back has enough to do.
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells what was lost meanwhile, then that all is well again. `false` if the engine was closed.
    fn return_to_service(&self, number: u64, line: &Line, lost: Vec<(ClaimId, GoneReason)>) -> bool {
        for (claim, reason) in lost {
            self.is_gone(claim, reason);
        }
        let counter = Counter::new(self.facts().takes_bare);
        if !self.link.up(number, line.clone(), counter) {
            return false;
        }
        self.signals.send(Signal::Connection(ConnectionState::Reconnected));
        // What was told meanwhile was told to nobody.
        self.foreign.wake_all();
        self.claims.wake_all();
        true
    }

    /// Which held claims the server does not know any more. What cannot be asked about is found by
    /// the next renewal.
    async fn lost_meanwhile(&self, line: &mut Line) -> Vec<(ClaimId, GoneReason)> {
        let held = self.claims.held();
        let mut lost = Vec::new();
        for some in self.batches(&held) {
            let call = self.call_on(&self.scripts.held, crate::verbs::resources(some), |command| {
                for claim in some {
                    command.arg(claim.id.to_string());
                }
            });
            let Ok(value) = line.send(&call.by_text()).await else { return lost };
            let Ok(answers) = crate::reply::each(value, some.len()) else { return lost };
            let now = SystemClock.now();
            for (claim, answer) in some.iter().zip(answers) {
                if let Some(note) = answer {
                    lost.push((claim.id, self.why(claim.id, &note, now)));
                }
            }
        }
        lost
    }

    /// Notes that a claim is no more, and tells its client if it was held.
    pub(crate) fn is_gone(&self, claim: ClaimId, reason: GoneReason) {
        if self.claims.gone(claim, reason.clone()) {
            self.signals.send(Signal::Gone { claim, reason });
        }
    }

    /// Why a claim is gone: by what the server noted, else by what we know.
    pub(crate) fn why(&self, claim: ClaimId, note: &str, now: BootInstant) -> GoneReason {
        match note.split_once(' ') {
            Some(("evicted", reason)) => GoneReason::Evicted { reason: reason.to_owned() },
            _ if note == "withdrawn" => GoneReason::Withdrawn,
            _ => self.claims.why_unknown(claim, now),
        }
    }

    /// Completes once the Sentinels call another server the primary than the one we talk to: an old
    /// primary that is cut off from the others does not know.
    async fn is_deposed(&self) {
        const LOOK_AGAIN: Duration = Duration::from_secs(1);
        let Servers::Sentinel { sentinels, service } = &self.config.servers else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if let Ok(primary) = crate::dial::primary(&self.config, sentinels, service).await
                && self.facts().address.is_some_and(|address| address != primary)
            {
                return;
            }
        }
    }
}

#[async_trait]
impl Engine for RedisEngine {
    fn profile(&self) -> &Profile {
        &self.inner.profile
    }

    fn source(&self) -> Source {
        self.inner.facts().source
    }

    fn signals(&self) -> &Signals {
        &self.inner.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The link watches over the connection, and ends all calls with it. A Cluster has many.
    fn bounds_calls(&self) -> bool {
        !matches!(self.inner.config.servers, Servers::Cluster(_))
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        self.inner.facts.lock().forgot_at
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.inner.claim(claim).await.map_err(|error| error.about(&claim.resource))
    }

    async fn claim_each(&self, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        let answers = self.inner.claim_each(claims).await;
        let about =
            |(answer, claim): (Result<_>, &Arc<Claim>)| answer.map_err(|error| error.about(&claim.resource));
        answers.into_iter().zip(claims).map(about).collect()
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
            self.inner.link.close();
            self.inner.signals.send(Signal::Connection(ConnectionState::Lost));
            self.inner.claims.wake_all();
        }
    }
}
