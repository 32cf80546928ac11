use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Condition, ConnectionState, Consistency, Drift,
    Durability, Engine, Error, ErrorKind, Evicted, Fairness, FamilyScope, Gather, Inspection, Liveness,
    Modes, Name, Owner, Page, Profile, Raise, Reach, Reading, Renewed, Result, Selector, Signal, Signals,
    Source, TokenPromise, Trips, Waited, Wakeup, WatchStream, Withdrawn, Written,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::claims::Claims;
use crate::groups::Groups;
use crate::keeper::{Ended, keep, poll};
use crate::link::Link;
#[cfg(feature = "mysql")]
use crate::mysql::{Bells, MySqlConfig, Wake};
#[cfg(feature = "postgres")]
use crate::postgres::{Listen, PostgresConfig, is_pooled};
use crate::server::{Facts, Line, Server, Settings};
use crate::verbs::Said;

/// What the engine promises on PostgreSQL.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, unreachable_pub, reason = "PostgreSQL alone"))]
pub fn profile() -> Profile {
    Profile {
        engine: "postgres",
        reach: Reach::Network,
        consistency: Consistency::UntilFailover,
        fairness: Fairness::Fifo,
        tokens: TokenPromise {
            source: "a sequence of the database, above its timeline",
            assumes: Some("that every failover and every restore begins a timeline of its own"),
        },
        wakeup: Wakeup::Push,
        liveness: Liveness::Ttl,
        durability: Durability::Crash,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(2), per_mille: 10 },
        // All in one call: those that are renewed together become one row at the server.
        batch: 16_384,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// One client of a database.
#[derive(Debug)]
pub struct SqlEngine {
    pub(crate) inner: Arc<Inner>,
    /// Make connections again, and ask where nobody tells.
    tasks: Vec<AbortHandle>,
}

/// What the engine shares with its tasks.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Settings,
    pub(crate) hearing: Hearing,
    pub(crate) link: Link,
    pub(crate) claims: Claims,
    pub(crate) groups: Groups,
    pub(crate) ended: Ended,
    pub(crate) claiming: Gather<Arc<Claim>, Result<Said>>,
    pub(crate) withdrawing: Gather<Arc<Claim>, Result<Withdrawn>>,
    pub(crate) owners: Owners,
    pub(crate) signals: Signals,
    /// By which those who wait are woken, where the server tells nobody.
    #[cfg(feature = "mysql")]
    pub(crate) bells: Option<Bells>,
    /// Where this client is told of its turns; begins with a minus if nobody listens there.
    pub(crate) client: String,
    /// Woken when what was told for a try is heard.
    pub(crate) heard: Notify,
    /// What is known of the server.
    pub(crate) facts: Mutex<Facts>,
    pub(crate) profile: Profile,
}

/// How this client hears that it is its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    Told { pooled: bool },
    Polled,
}

/// The last owner as text: a client is the same for all its claims.
#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<Option<(Arc<Owner>, Arc<str>)>>);

impl Owners {
    pub(crate) fn text(&self, owner: &Arc<Owner>) -> Arc<str> {
        let mut last = self.0.lock();
        match &*last {
            Some((known, text)) if Arc::ptr_eq(known, owner) => Arc::clone(text),
            _ => {
                // A struct of strings and a number always has a JSON form.
                let text: Arc<str> = serde_json::to_string(&**owner).unwrap_or_default().into();
                *last = Some((Arc::clone(owner), Arc::clone(&text)));
                text
            }
        }
    }
}

impl SqlEngine {
    /// Connects as `config` says, makes the schema if there is none, and checks that the server can be trusted with
    /// locks.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if it cannot be reached or is a replica, [`ErrorKind::Denied`] if it refuses this
    /// user, [`ErrorKind::Unsupported`] if it is too old or its schema too new.
    ///
    /// # Cancel safety
    /// Safe: a connection that is half made ends with the future.
    #[cfg(feature = "postgres")]
    pub async fn postgres(config: PostgresConfig) -> Result<Self> {
        open(config.into()).await.map_err(|error| error.on_engine("postgres"))
    }

    /// As [`SqlEngine::postgres`], on MySQL or MariaDB.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    #[cfg(feature = "mysql")]
    pub async fn mysql(config: MySqlConfig) -> Result<Self> {
        open(config.into()).await.map_err(|error| error.on_engine("mysql"))
    }
}

async fn open(config: Settings) -> Result<SqlEngine> {
    let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::Invalid, "an engine is opened inside a tokio runtime").because(error)
    })?;
    let limit = config.connect_timeout * 3;
    let looking = tokio::time::timeout(limit, first_look(&config)).await;
    let (hearing, facts, mut line) = looking.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, format!("the server did not answer within {limit:?}")))
    })?;
    let mut profile = config.server.profile();
    if !facts.syncs {
        profile.durability = Durability::Settings;
    }
    let mut client = Uuid::new_v4().simple().to_string()[..16].to_owned();
    #[cfg(feature = "mysql")]
    let bells = bells(&config.server);
    if hearing == Hearing::Polled {
        profile.wakeup = Wakeup::Poll(config.poll);
        #[cfg(feature = "mysql")]
        if bells.is_some() {
            profile.wakeup = Wakeup::PushOrPoll(config.poll);
        }
        client.insert(0, '-');
    }
    let inner = Arc::new(Inner {
        hearing,
        link: Link::new(config.call_timeout),
        claims: Claims::default(),
        groups: Groups::default(),
        ended: Ended::default(),
        claiming: Gather::default(),
        withdrawing: Gather::default(),
        owners: Owners::default(),
        signals: Signals::new(),
        #[cfg(feature = "mysql")]
        bells,
        client,
        heard: Notify::new(),
        facts: Mutex::new(facts.clone()),
        profile,
        config,
    });
    if hearing == (Hearing::Told { pooled: false }) {
        line.keep_statements();
    }
    let (session, _) = inner.connect(Some((line, facts))).await?;
    inner.link.up(&session.lines);
    #[cfg(feature = "mysql")]
    if let Some(bells) = &inner.bells {
        bells.arrive(&inner).await.inspect_err(|_| inner.link.close())?;
    }
    let mut tasks = vec![runtime.spawn(keep(Arc::clone(&inner), session)).abort_handle()];
    if hearing == Hearing::Polled {
        tasks.push(runtime.spawn(poll(Arc::clone(&inner), inner.config.poll)).abort_handle());
    }
    Ok(SqlEngine { inner, tasks })
}

#[cfg(feature = "mysql")]
fn bells(server: &Server) -> Option<Bells> {
    match server {
        Server::MySql(config) if config.wake == Wake::GetLock => Some(Bells::new(config)),
        _ => None,
    }
}

/// Finds out whom we talk to, and through what.
async fn first_look(config: &Settings) -> Result<(Hearing, Facts, Line)> {
    let line = config.server.dial(false).await?;
    let facts = config.server.arrive(&line).await?;
    if let Err(error) = line.sweep().await {
        tracing::debug!(%error, "what others left could not be removed");
    }
    Ok((how_to_hear(&config.server, &line).await?, facts, line))
}

async fn how_to_hear(server: &Server, line: &Line) -> Result<Hearing> {
    match (server, line) {
        #[cfg(feature = "postgres")]
        (Server::Postgres(config), Line::Postgres(line)) => match &config.listen {
            Listen::Poll => Ok(Hearing::Polled),
            Listen::At(_) => Ok(Hearing::Told { pooled: true }),
            Listen::Same if is_pooled(config, line).await? => {
                tracing::warn!(
                    "a pooler stands before the server, through which nobody can be told of its turn: waiting polls; name a direct way with listen="
                );
                Ok(Hearing::Polled)
            }
            Listen::Same => Ok(Hearing::Told { pooled: false }),
        },
        #[cfg(feature = "mysql")]
        _ => Ok(Hearing::Polled),
    }
}

impl Inner {
    async fn close(&self) {
        #[cfg(feature = "mysql")]
        if let Some(bells) = &self.bells {
            bells.close().await;
        }
        self.link.close();
    }
}

impl Drop for SqlEngine {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        #[cfg(feature = "mysql")]
        if self.inner.bells.is_some()
            && !self.inner.link.is_closed()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // The server is told to end what waits there, over connections that end after that.
            let inner = Arc::clone(&self.inner);
            runtime.spawn(async move { inner.close().await });
            return;
        }
        self.inner.link.close();
    }
}

#[async_trait]
impl Engine for SqlEngine {
    fn profile(&self) -> &Profile {
        &self.inner.profile
    }

    fn source(&self) -> Source {
        self.inner.facts.lock().source.clone()
    }

    fn signals(&self) -> &Signals {
        &self.inner.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        Some(self.inner.facts.lock().forgot_at)
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
        self.inner.watch(selector).await
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
            self.inner.close().await;
            self.inner.signals.send(Signal::Connection(ConnectionState::Lost));
            self.inner.claims.wake_all();
        }
    }
}
