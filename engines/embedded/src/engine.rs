use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, Consistency, Drift, Durability, Engine,
    Error, ErrorKind, Evicted, Fairness, FamilyScope, Inspection, Liveness, Modes, Name, Page, Profile,
    Raise, Reach, Reading, Renewed, Result, Selector, Signals, Source, SystemClock, TokenPromise, Trips,
    Waited, Wakeup, WatchStream, Withdrawn, Written,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::config::{EmbeddedConfig, Sync as Syncing};
use crate::error::{ENGINE, error};
use crate::folder::{self, Folder};
use crate::ledger::Notes;
use crate::notice::Notices;
use crate::registers::Registers;
use crate::session::Sessions;
use crate::shared::{Shared, Urgency};
use crate::store::{self, Store};
use crate::wake::{self, Post, SocketPaths, Waiters};
use crate::worker::Worker;
use crate::{wait, watch};

/// What the embedded engine promises.
pub fn profile() -> Profile {
    Profile {
        engine: ENGINE,
        reach: Reach::Host,
        consistency: Consistency::Linearizable,
        fairness: Fairness::Fifo,
        tokens: TokenPromise { source: "a counter file of the folder", assumes: None },
        wakeup: Wakeup::Push,
        liveness: Liveness::Kernel,
        durability: Durability::Crash,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        // All processes read the same clock; the margin covers the time to act on it.
        drift: Drift { fixed: Duration::from_millis(1), per_mille: 5 },
        batch: 16_384,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// One session in a folder that processes of one host share.
///
/// Dropping it ends the session as the death of the process would: what it claimed passes on at
/// once. [`Engine::close`] does the same in order.
#[derive(Debug)]
pub struct EmbeddedEngine {
    shared: Arc<Shared>,
    registers: Arc<Registers>,
    profile: Profile,
    source: Source,
    /// Only `None` while dropping.
    lifeline: Option<Arc<File>>,
    receiver: AbortHandle,
}

impl EmbeddedEngine {
    /// Opens the folder, making it if need be, and starts a session in it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a path that cannot be a folder, [`ErrorKind::Denied`] for one that
    /// cannot be written, [`ErrorKind::Full`], [`ErrorKind::Unsupported`] on a file system that
    /// is shared with other machines, [`ErrorKind::Corrupt`] if what lies there is damaged, of a
    /// newer format, or another program's. Nothing is ever deleted because of an error.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn open(config: EmbeddedConfig) -> Result<Self> {
        let runtime = Handle::current();
        check_namespace(&config.namespace)?;
        let boot = folder::boot_id(config.boot_id.as_deref())?;
        let folder = Folder::open(&config.folder)?;
        let write_lock = folder.lock_file("write.lock")?;
        let (folder, write_lock, store) = open_store(folder, write_lock, boot, &config).await?;
        let engine = Self::start(config, &runtime, folder, write_lock, store, boot)?;
        engine.clean_up().await;
        Ok(engine)
    }

    fn start(
        config: EmbeddedConfig,
        runtime: &Handle,
        folder: Folder,
        write_lock: File,
        store: Store,
        boot: Uuid,
    ) -> Result<Self> {
        let registers = Registers::new(&folder, &config.namespace, boot, config.call_timeout)?;
        let sessions = Sessions::new(folder.sessions());
        let (session, lifeline) = sessions.start()?;
        let lifeline = Arc::new(lifeline);
        let paths = SocketPaths::new(&sessions)?;
        let socket = paths.bind(session).inspect_err(|_| sessions.remove(session))?;
        let source = store.source();
        let shared = Arc::new(Shared {
            namespace: config.namespace,
            call_timeout: config.call_timeout,
            synced: config.sync == Syncing::Full,
            claims: folder.claims(),
            folder,
            session,
            sessions,
            lifeline: Arc::downgrade(&lifeline),
            write_lock,
            store: Mutex::new(store),
            reader: Mutex::new(None),
            notes: Notes::default(),
            waiters: Arc::new(Waiters::default()),
            signals: Signals::new(),
            post: Post::new(paths)?,
            worker: Worker::new("palisade-claims"),
            notices: Arc::new(Notices::new()),
            runtime: runtime.clone(),
            closed: AtomicBool::new(false),
        });
        let receiver = runtime.spawn(receive(socket, Arc::downgrade(&shared))).abort_handle();
        Ok(Self {
            shared,
            registers: Arc::new(registers),
            profile: profile(),
            source,
            lifeline: Some(lifeline),
            receiver,
        })
    }

    /// Removes what sessions that are over left behind; a few at a time, the next one goes on.
    async fn clean_up(&self) {
        const AT_ONCE: usize = 32;
        for session in self.shared.sessions.dead(AT_ONCE) {
            self.shared.reap(session).await;
        }
    }
}

/// Opens the store, after making the folder fit for this boot if it is not.
async fn open_store(
    folder: Folder,
    write_lock: File,
    boot: Uuid,
    config: &EmbeddedConfig,
) -> Result<(Folder, File, Store)> {
    if let Some(store) = Store::open(&folder, boot, config.sync)? {
        return Ok((folder, write_lock, store));
    }
    let (sync, limit) = (config.sync, config.call_timeout);
    let prepare = move || -> Result<(Folder, File, Store)> {
        folder::lock_within(&write_lock, &folder.path().join("write.lock"), limit)?;
        store::prepare(&folder, boot)?;
        let store = Store::open(&folder, boot, sync)?;
        let _ = rustix::fs::flock(&write_lock, rustix::fs::FlockOperation::Unlock);
        let store = store.ok_or_else(|| {
            error(ErrorKind::Unavailable, "the folder changed while it was opened; try again")
        })?;
        Ok((folder, write_lock, store))
    };
    tokio::task::spawn_blocking(prepare)
        .await
        .map_err(|problem| error(ErrorKind::Internal, "opening the folder failed").because(problem))?
}

fn check_namespace(namespace: &str) -> Result<()> {
    if namespace.is_empty() {
        return Ok(());
    }
    Name::new(namespace)
        .map(drop)
        .map_err(|problem| error(ErrorKind::Invalid, format!("not a namespace: {problem}")))
}

/// Hears what other sessions tell this one, until the engine is dropped.
async fn receive(socket: UnixDatagram, shared: Weak<Shared>) {
    let Ok(socket) = tokio::net::UnixDatagram::from_std(socket) else { return };
    let full = wake::queue_length();
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        let Some(shared) = shared.upgrade() else { return };
        let mut buffer = [0; 64];
        let mut heard = 0;
        while let Ok(length) = socket.try_recv(&mut buffer) {
            heard += 1;
            shared.hear(&buffer[..length]);
        }
        if heard >= full {
            shared.hear_all();
        }
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.shared.shut();
        self.receiver.abort();
        self.lifeline = None;
        // Not over if a child still has the descriptor: then the claims stay until it ends, or
        // their TTL does.
        if self.shared.sessions.is_dead(self.shared.session) {
            self.shared.sessions.remove(self.shared.session);
        }
    }
}

/// More than this in one call would hold up the caller's thread.
const LIGHT_BATCH: usize = 64;

fn weight(claims: &[Arc<Claim>]) -> Urgency {
    if claims.len() > LIGHT_BATCH { Urgency::Heavy } else { Urgency::Normal }
}

fn about(name: &Name) -> impl Fn(Error) -> Error {
    move |error| error.on_engine(ENGINE).about(name)
}

#[async_trait]
impl Engine for EmbeddedEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn source(&self) -> Source {
        self.source.clone()
    }

    fn signals(&self) -> &Signals {
        &self.shared.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_deref().map(AsFd::as_fd)
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.shared.check_open()?;
        self.shared.check_session()?;
        let (asked, asks) = (SystemClock.now().as_nanos(), Arc::clone(claim));
        self.shared
            .decide(Urgency::Abandonable, move |ledger| ledger.claim(&asks, asked))
            .await
            .map_err(about(&claim.resource))
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        wait::wait(&self.shared, claim).await.map_err(about(&claim.resource))
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let (asks, change) = (Arc::clone(claim), change.clone());
        self.shared
            .decide(Urgency::Normal, move |ledger| ledger.change(&asks, &change))
            .await
            .map_err(about(&claim.resource))
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let (asked, all) = (SystemClock.now().as_nanos(), claims.to_vec());
        self.shared.decide(weight(claims), move |ledger| ledger.renew(&all, asked)).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        let all = claims.to_vec();
        self.shared.decide(weight(claims), move |ledger| ledger.withdraw_all(&all)).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.shared.check_open()?;
        if !selector.wants_resources() {
            return Ok(Inspection::default());
        }
        Ok(watch::inspect(&self.shared, selector, page).await?.inspection)
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let (name, reason) = (resource.clone(), reason.to_owned());
        self.shared
            .decide(Urgency::Normal, move |ledger| ledger.evict(&name, claim, &reason))
            .await
            .map_err(about(resource))
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.shared.check_open()?;
        watch::watch(&self.shared, &self.registers, selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.shared.check_open()?;
        match raise {
            None => self.registers.read(register).map(Reading::Fresh),
            Some(raise) => self.registers.raise(register, raise).await,
        }
        .map_err(about(register))
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.shared.check_open()?;
        self.registers.put(register, Some(value), condition, expires_in).await.map_err(about(register))
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.shared.check_open()?;
        self.registers.put(register, None, condition, None).await.map_err(about(register))
    }

    async fn close(&self) {
        if !self.shared.shut() {
            return;
        }
        // What was asked for before is still done first, so nothing is left behind it.
        let spare = self.shared.worker.is_idle() && self.shared.notes.is_empty();
        if !spare {
            let session = self.shared.session;
            let ended = self.shared.decide_later(Urgency::Heavy, move |ledger| ledger.reap(&[session])).await;
            if let Err(problem) = ended {
                tracing::warn!(%problem, "could not end the session in order; its claims pass on as after a crash");
            }
        }
        self.receiver.abort();
        self.shared.sessions.remove(self.shared.session);
    }
}
