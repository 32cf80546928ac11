//! The memory engine: one process, nothing to start, nothing kept.
//!
//! It is the executable specification of [`Engine`]: short enough to read, and what the suite's
//! cases are checked against first. For tests and examples.

mod ledger;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

use self::ledger::{Ledger, Turn};
use crate::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, ConnectionState, Consistency,
    Drift, Durability, Engine, Error, ErrorKind, Evicted, Fairness, FamilyScope, Inspection, Liveness, Modes,
    Name, Page, Profile, Raise, Reach, Reading, Renewed, Result, Selector, Signal, Signals, Source,
    SystemClock, TokenPromise, Trips, Waited, Wakeup, WatchStream, Watched, Withdrawn, Written,
    watch_by_looking,
};

/// What the memory engine promises.
pub fn profile() -> Profile {
    Profile {
        engine: "memory",
        reach: Reach::Process,
        consistency: Consistency::Linearizable,
        fairness: Fairness::Fifo,
        tokens: TokenPromise { source: "a counter of the process", assumes: None },
        wakeup: Wakeup::Push,
        liveness: Liveness::Ttl,
        durability: Durability::Process,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        drift: Drift { fixed: Duration::from_millis(1), per_mille: 5 },
        batch: 16_384,
        trips: Trips { claim: 0, withdraw: 0, renew: 0 },
    }
}

/// What several memory connections share: the "server".
#[derive(Debug, Clone)]
pub struct MemoryStore(Arc<Store>);

#[derive(Debug)]
struct Store {
    clock: Arc<dyn Clock>,
    source: Source,
    /// Where the tokens of every namespace begin, less one.
    tokens_after: u64,
    /// By namespace.
    ledgers: Mutex<HashMap<String, Ledger>>,
    /// Counts changes, for those who watch.
    changes: watch::Sender<u64>,
}

impl MemoryStore {
    /// An empty store that follows `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let source = Source::new(format!("memory-{}", Uuid::new_v4().simple()));
        Self::succeeding(clock, source, 0)
    }

    /// An empty store in the place of one that is gone: it says the same source, and its tokens are
    /// greater than `last`. Whoever says less than what was granted makes old holders look new.
    pub fn succeeding(clock: Arc<dyn Clock>, source: Source, last: u64) -> Self {
        Self(Arc::new(Store {
            clock,
            source,
            tokens_after: last,
            ledgers: Mutex::default(),
            changes: watch::Sender::new(0),
        }))
    }

    /// The store called `name` in this process, for as long as anyone uses it.
    pub fn named(name: &str) -> Self {
        static STORES: LazyLock<Mutex<HashMap<String, Weak<Store>>>> = LazyLock::new(Mutex::default);
        let mut stores = STORES.lock();
        stores.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return Self(store);
        }
        let store = Self::default();
        stores.insert(name.to_owned(), Arc::downgrade(&store.0));
        store
    }

    /// A new connection to the store.
    pub fn connect(&self, namespace: &str) -> MemoryEngine {
        MemoryEngine {
            store: Arc::clone(&self.0),
            namespace: namespace.to_owned(),
            profile: profile(),
            signals: Signals::new(),
            closed: Arc::default(),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

/// One connection to a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryEngine {
    store: Arc<Store>,
    namespace: String,
    profile: Profile,
    signals: Signals,
    closed: Arc<AtomicBool>,
}

impl MemoryEngine {
    fn open(&self) -> Result<()> {
        check_open(&self.closed)
    }

    /// Decides something, and tells those who watch that something may have changed.
    fn decide<T>(&self, decide: impl FnOnce(&mut Ledger, BootInstant) -> T) -> Result<T> {
        self.open()?;
        let outcome = self.store.look(&self.namespace, decide);
        self.store.changes.send_modify(|count| *count += 1);
        Ok(outcome)
    }
}

fn check_open(closed: &AtomicBool) -> Result<()> {
    if closed.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Closed, "the connection was closed").on_engine("memory"));
    }
    Ok(())
}

impl Store {
    fn look<T>(&self, namespace: &str, look: impl FnOnce(&mut Ledger, BootInstant) -> T) -> T {
        let mut ledgers = self.ledgers.lock();
        // Read under the lock: decisions must be ordered as their times are.
        let now = self.clock.now();
        let ledger = ledgers.entry(namespace.to_owned());
        look(ledger.or_insert_with(|| Ledger::counting_after(self.tokens_after)), now)
    }

    fn watched(&self, namespace: &str, selector: &Selector) -> Watched {
        self.look(namespace, |ledger, now| {
            let resources = if selector.wants_resources() {
                ledger.inspect(selector, &Page { after: None, limit: usize::MAX }, now).resources
            } else {
                Vec::new()
            };
            let registers: Vec<_> = ledger
                .registers
                .iter()
                .filter(|(name, _)| selector.wants_registers() && selector.matches(name))
                .map(|(name, stored)| (name.clone(), stored.entry(now.as_nanos())))
                .collect();
            // Only of what was looked at: an unseen claim past its time would keep the watch spinning.
            let claims = resources.iter().flat_map(|view| view.holders.iter().chain(&view.waiters));
            let next_change = registers
                .iter()
                .filter_map(|(_, entry)| entry.expires_in)
                .chain(claims.filter_map(|claim| claim.expires_in))
                .min()
                .map(|left| now + left);
            Watched { resources, registers, next_change }
        })
    }
}

#[async_trait]
impl Engine for MemoryEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn source(&self) -> Source {
        self.store.source.clone()
    }

    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.decide(|ledger, now| ledger.claim(claim, &self.signals, now))?
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        loop {
            self.open()?;
            let turn = self.store.look(&self.namespace, |ledger, now| match ledger.turn(claim, now) {
                Turn::Over(waited) => Err(waited),
                Turn::Sleep(turn, until) => {
                    // Enlisted before the lock is let go, so that no wake-up falls in between.
                    let mut told = Box::pin(turn.notified_owned());
                    told.as_mut().enable();
                    Ok((told, until))
                }
            });
            match turn {
                Err(waited) => return Ok(waited),
                Ok((told, until)) => match select(told, self.store.clock.sleep_until(until)).await {
                    Either::Left(_) | Either::Right(_) => {}
                },
            }
        }
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.decide(|ledger, now| ledger.change(claim, change, now))
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.open()?;
        Ok(self.store.look(&self.namespace, |ledger, now| {
            claims.iter().map(|claim| ledger.renew(claim, now)).collect()
        }))
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.decide(|ledger, now| claims.iter().map(|claim| ledger.withdraw(claim, now)).collect())
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.open()?;
        Ok(self.store.look(&self.namespace, |ledger, now| ledger.inspect(selector, page, now)))
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.decide(|ledger, now| ledger.evict(resource, claim, reason, now))
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.open()?;
        let (store, namespace, selector) =
            (Arc::clone(&self.store), self.namespace.clone(), selector.clone());
        let clock = Arc::clone(&store.clock);
        // One receiver for all looks: a change during a look is still unseen afterwards.
        let news = Arc::new(tokio::sync::Mutex::new(store.changes.subscribe()));
        let closed = Arc::clone(&self.closed);
        let look = move || {
            let watched = check_open(&closed).map(|()| store.watched(&namespace, &selector));
            async move { watched }
        };
        let changed = move || {
            let news = Arc::clone(&news);
            let told: BoxFuture<'static, ()> = Box::pin(async move {
                let _ = news.lock().await.changed().await;
            });
            told
        };
        Ok(watch_by_looking(clock, look, changed))
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        let read = |ledger: &mut Ledger, now: BootInstant| match (raise, ledger.registers.get_mut(register)) {
            (None, stored) => Ok(Reading::Fresh(stored.cloned().unwrap_or_default().entry(now.as_nanos()))),
            (Some(raise), Some(stored)) => stored.raise(now.as_nanos(), raise),
            (Some(raise), None) => {
                ledger.registers.entry(register.clone()).or_default().raise(now.as_nanos(), raise)
            }
        };
        self.open()?;
        self.store.look(&self.namespace, read).map_err(|error| error.on_engine("memory").about(register))
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.put(register, Some(value), condition, expires_in)
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.put(register, None, condition, None)
    }

    async fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.signals.send(Signal::Connection(ConnectionState::Lost));
            self.store.changes.send_modify(|count| *count += 1);
        }
    }
}

impl MemoryEngine {
    fn put(
        &self,
        register: &Name,
        value: Option<Bytes>,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.decide(|ledger, now| {
            let expires = expires_in.map(|after| (now + after).as_nanos());
            let stored = ledger.registers.entry(register.clone()).or_default();
            stored.write(now.as_nanos(), value, condition, expires)
        })?
        .map_err(|error| error.on_engine("memory").about(register))
    }
}
