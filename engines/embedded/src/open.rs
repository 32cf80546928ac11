use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use palisade_core::{ErrorKind, Name, Result, Signals};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::config::{EmbeddedConfig, Sync as Syncing};
use crate::engine::{EmbeddedEngine, profile};
use crate::error::error;
use crate::folder::{self, Folder};
use crate::ledger::Notes;
use crate::notice::Notices;
use crate::registers::Registers;
use crate::session::Sessions;
use crate::shared::Shared;
use crate::store::{self, Store};
use crate::wake::{self, Post, SocketPaths, Waiters};
use crate::worker::Worker;
use crate::write_lock::WriteLock;

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
        let write_lock = WriteLock::open(&folder)?;
        let (folder, write_lock, store) = open_store(folder, write_lock, boot, &config).await?;
        let engine = Self::start(config, &runtime, folder, write_lock, store, boot)?;
        engine.clean_up().await;
        Ok(engine)
    }

    fn start(
        config: EmbeddedConfig,
        runtime: &Handle,
        folder: Folder,
        write_lock: WriteLock,
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
    write_lock: WriteLock,
    boot: Uuid,
    config: &EmbeddedConfig,
) -> Result<(Folder, WriteLock, Store)> {
    if let Some(store) = Store::open(&folder, boot, config.sync)? {
        return Ok((folder, write_lock, store));
    }
    let (sync, limit) = (config.sync, config.call_timeout);
    let prepare = move || -> Result<(Folder, WriteLock, Store)> {
        let locked = write_lock.lock_within(&folder, limit)?;
        store::prepare(&folder, boot)?;
        let store = Store::open(&folder, boot, sync)?;
        drop(locked);
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
