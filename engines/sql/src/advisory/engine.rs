use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, Durability, Engine, Error,
    ErrorKind, Evicted, Inspection, Name, Page, Profile, Raise, Reading, Renewed, Result, Selector, Signals,
    Source, SystemClock, Ttl, Waited, WatchStream, Withdrawn, Written,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::book::Book;
use super::dialect::Terms;
use super::keeper::{care, reap};
use super::keys::mark_of;
use super::notes::{Asked, keep_notes};
use super::seat::Seat;
use super::seats::Seats;
use crate::SqlEngine;
use crate::engine::Owners;
#[cfg(feature = "mysql")]
use crate::mysql::MySqlConfig;
#[cfg(feature = "postgres")]
use crate::postgres::PostgresConfig;

/// One client of a database whose claims are session locks.
#[derive(Debug)]
pub struct AdvisoryEngine {
    inner: Arc<Inner>,
    tasks: Vec<AbortHandle>,
}

/// What the engine shares with its tasks.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) terms: Terms,
    pub(super) profile: Profile,
    /// For registers, and for what is noted of claims.
    pub(super) desk: SqlEngine,
    pub(super) seats: Seats,
    /// How the connections of this namespace are called, of all clients; and those of this one.
    pub(super) seat_mark: String,
    pub(super) seat_names: String,
    /// How the names of this database's locks begin, where locks have names.
    pub(super) locks: String,
    pub(super) book: Book,
    pub(super) noting: mpsc::UnboundedSender<Asked>,
    pub(super) owners: Owners,
    pub(super) signals: Signals,
    pub(super) forgot_at: Mutex<BootInstant>,
    pub(super) runtime: Handle,
    /// Keys that somebody had to wait for lately.
    hot: Mutex<HashMap<i64, BootInstant>>,
    closed: watch::Sender<bool>,
}

impl AdvisoryEngine {
    /// Connects as `config` says, makes the schema if there is none, and checks that the server can be trusted with
    /// session locks.
    ///
    /// # Errors
    /// As [`SqlEngine::postgres`]; and [`ErrorKind::Unsupported`] behind a pooler, which gives a session to many.
    ///
    /// # Cancel safety
    /// Safe: a connection that is half made ends with the future.
    #[cfg(feature = "postgres")]
    pub async fn postgres(config: PostgresConfig) -> Result<Self> {
        open(config.into()).await.map_err(|error| error.on_engine("postgres-advisory"))
    }

    /// As [`AdvisoryEngine::postgres`], on MySQL or MariaDB, with `GET_LOCK`.
    ///
    /// # Errors
    /// As there; and [`ErrorKind::Unsupported`] on a Galera cluster, of which each node has locks of its own.
    ///
    /// # Cancel safety
    /// As there.
    #[cfg(feature = "mysql")]
    pub async fn mysql(config: MySqlConfig) -> Result<Self> {
        open(config.into()).await.map_err(|error| error.on_engine("mysql-advisory"))
    }
}

async fn open(terms: Terms) -> Result<AdvisoryEngine> {
    let runtime = Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::Invalid, "an engine is opened inside a tokio runtime").because(error)
    })?;
    terms.check()?;
    let desk = terms.desk().await?;
    terms.refuse_sharers(&desk).await?;
    if let Err(error) = desk.inner.link.line().await?.sweep_sessions().await {
        tracing::debug!(%error, "what others left could not be removed");
    }
    let mut profile = terms.profile();
    if desk.profile().durability == Durability::Settings {
        profile.durability = Durability::Settings;
    }
    let seat_mark = format!("palisade/{}/", mark_of(&terms.namespace));
    let client = Uuid::new_v4().simple().to_string()[..16].to_owned();
    let (noting, asked) = mpsc::unbounded_channel();
    let inner = Arc::new(Inner {
        seat_names: format!("{seat_mark}{client}/"),
        seat_mark,
        locks: format!("palisade.{}.", mark_of(desk.source().as_str())),
        profile,
        signals: desk.inner.signals.clone(),
        desk,
        seats: Seats::default(),
        book: Book::default(),
        noting,
        owners: Owners::default(),
        forgot_at: Mutex::new(SystemClock.now()),
        runtime: runtime.clone(),
        hot: Mutex::default(),
        closed: watch::Sender::new(false),
        terms,
    });
    let ttl = Ttl::default().as_duration();
    let first = inner.make_seat(ttl).await?;
    inner.seats.made(&first, None, ttl, false);
    let tasks = vec![
        runtime.spawn(care(Arc::clone(&inner))).abort_handle(),
        runtime.spawn(reap(Arc::clone(&inner))).abort_handle(),
        runtime.spawn(keep_notes(Arc::clone(&inner), asked)).abort_handle(),
    ];
    Ok(AdvisoryEngine { inner, tasks })
}

impl Inner {
    /// For how long a key that was waited for is expected to be waited for.
    const HOT: Duration = Duration::from_millis(100);

    /// Whether it is no use to ask for a key without waiting.
    pub(super) fn is_hot(&self, key: i64) -> bool {
        let hot = self.hot.lock();
        !hot.is_empty() && hot.get(&key).is_some_and(|at| SystemClock.now() < *at + Self::HOT)
    }

    pub(super) fn heat(&self, key: i64) {
        const MOST: usize = 1024;
        let now = SystemClock.now();
        let mut hot = self.hot.lock();
        if hot.len() >= MOST {
            hot.retain(|_, at| now < *at + Self::HOT);
        }
        if hot.len() < MOST {
            hot.insert(key, now);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(super) async fn until_closed(&self) {
        let mut closed = self.closed.subscribe();
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Ends everything; those seats whose end the server must be told. `None` if that was done before.
    fn close(&self) -> Option<Vec<Arc<Seat>>> {
        if self.closed.send_replace(true) {
            return None;
        }
        let waited = self.seats.end_all();
        self.book.wake_all();
        Some(waited)
    }
}

impl Drop for AdvisoryEngine {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        let Some(waited) = self.inner.close().filter(|waited| !waited.is_empty()) else { return };
        // The server is told over the desk, which ends with what it is part of.
        let inner = Arc::clone(&self.inner);
        self.inner.runtime.spawn(async move {
            join_all(waited.iter().map(|seat| seat.stopped())).await;
            drop(inner);
        });
    }
}

#[async_trait]
impl Engine for AdvisoryEngine {
    fn profile(&self) -> &Profile {
        &self.inner.profile
    }

    fn source(&self) -> Source {
        self.inner.terms.source(&self.inner.desk)
    }

    fn signals(&self) -> &Signals {
        &self.inner.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        Some(*self.inner.forgot_at.lock())
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

    async fn evict(&self, resource: &Name, _claim: ClaimId, _reason: &str) -> Result<Evicted> {
        let message =
            "a session lock cannot be ended alone: only its connection can, with all that is held over it";
        Err(Error::new(ErrorKind::Unsupported, message).about(resource))
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        super::inspect::watch(&self.inner, selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.inner.desk.read(register, raise).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.inner.desk.write(register, value, condition, expires_in).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.inner.desk.delete(register, condition).await
    }

    async fn close(&self) {
        if let Some(waited) = self.inner.close() {
            join_all(waited.iter().map(|seat| seat.stopped())).await;
            self.inner.desk.close().await;
        }
    }
}
