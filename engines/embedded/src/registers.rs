use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use palisade_core::{
    Condition, Entry, ErrorKind, Matching, Name, Raise, Reading, Result, Selector, StoredRegister, Written,
};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::database::{self, Kind, Opened, Place};
use crate::error::{Step, error, of_io};
use crate::folder::{Folder, lock_is_held};
use crate::register_rows::{Moment, decode, encode_fence};
use crate::rows::sql;
use crate::worker::Worker;
use crate::write_lock::lock_blocking;

const REGISTERS: Kind = Kind {
    application_id: i32::from_be_bytes(*b"PalR"),
    schema: include_str!("../schema/registers.sql"),
    page_size: 4096,
};

/// The registers of a folder. Every write is on the disk before it is acknowledged.
///
/// A database of its own, because it must outlive a power loss and the claims' need not; with a
/// lock and a thread of their own, so that nobody's lock waits for a disk.
#[derive(Debug)]
pub(crate) struct Registers {
    path: PathBuf,
    folder: PathBuf,
    namespace: String,
    boot: Uuid,
    lock: File,
    writer: Mutex<Option<(Connection, Place)>>,
    reader: Mutex<Option<(Connection, Place)>>,
    worker: Worker,
    call_timeout: Duration,
}

impl Registers {
    /// The registers of `folder`; the database is opened when it is first needed.
    pub(crate) fn new(folder: &Folder, namespace: &str, boot: Uuid, call_timeout: Duration) -> Result<Self> {
        Ok(Self {
            path: folder.registers(),
            folder: folder.path().to_owned(),
            namespace: namespace.to_owned(),
            boot,
            lock: folder.lock_file("registers.lock")?,
            writer: Mutex::new(None),
            reader: Mutex::new(None),
            worker: Worker::new("palisade-registers"),
            call_timeout,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a register as it is now.
    pub(crate) fn read(&self, name: &Name) -> Result<Entry> {
        let found = self.look(|db| {
            let now = Moment::now();
            Ok(self.load(db, name, &now)?.unwrap_or_default().entry(now.boot))
        })?;
        Ok(found.unwrap_or_else(|| StoredRegister::default().entry(0)))
    }

    /// All registers that `selector` means, also deleted ones.
    pub(crate) fn list(&self, selector: &Selector) -> Result<Vec<(Name, Entry)>> {
        let from = match &selector.matching {
            Matching::Exact(name) => name.as_str(),
            Matching::Prefix(prefix) => prefix.as_str(),
        };
        self.look(|db| {
            let now = Moment::now();
            let mut select = db.prepare_cached(
                "SELECT value, version, stamp, fence, expires_boot, expires_ns, expires_wall, name FROM register WHERE namespace = ?1 AND name >= ?2 ORDER BY name",
            )?;
            let mut rows = select.query([self.namespace.as_str(), from])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let name = Name::from_stored(row.get_ref(7)?.as_str().map_err(rusqlite::Error::from)?)
                    .map_err(|problem| error(ErrorKind::Corrupt, problem.to_string()))?;
                if !selector.matches(&name) {
                    break;
                }
                found.push((name, decode(row, self.boot, &now)?.entry(now.boot)));
            }
            Ok(found)
        })
        .map(Option::unwrap_or_default)
    }

    /// Reads a register and raises its fence.
    pub(crate) async fn raise(self: &Arc<Self>, name: &Name, raise: &Raise) -> Result<Reading> {
        let raise = raise.clone();
        self.decide(name, move |stored, now| stored.raise(now, &raise)).await
    }

    /// Writes a register; `None` deletes it.
    pub(crate) async fn put(
        self: &Arc<Self>,
        name: &Name,
        value: Option<Bytes>,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        let condition = condition.clone();
        self.decide(name, move |stored, now| {
            let after = |left: Duration| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            let expires = expires_in.map(|left| now.saturating_add(after(left)));
            stored.write(now, value, &condition, expires)
        })
        .await
    }

    /// Makes the database if there is none.
    pub(crate) async fn make(self: &Arc<Self>) -> Result<()> {
        self.on_worker(|_, _| Ok(())).await
    }

    /// Decides about one register in one synced transaction.
    async fn decide<T: Send + 'static>(
        self: &Arc<Self>,
        name: &Name,
        work: impl FnOnce(&mut StoredRegister, u64) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let name = name.clone();
        self.on_worker(move |registers, db| registers.transact(db, &name, work)).await
    }

    /// Works on the thread that may wait for the disk and for other processes.
    async fn on_worker<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &Connection) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let registers = Arc::clone(self);
        self.worker.submit(move || {
            let _ = answer.send(registers.with_writer(|db| work(&registers, db)));
        })?;
        match tokio::time::timeout(self.call_timeout, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(error(ErrorKind::Internal, "the write was not finished").with_unknown_effect()),
            Err(_) => {
                let path = self.path.with_extension("lock");
                Err(lock_is_held(&self.lock, &path, self.call_timeout).with_unknown_effect())
            }
        }
    }

    fn transact<T>(
        &self,
        db: &Connection,
        name: &Name,
        work: impl FnOnce(&mut StoredRegister, u64) -> Result<T>,
    ) -> Step<T> {
        database::transact(db, "BEGIN IMMEDIATE", || {
            let now = Moment::now();
            let before = self.load(db, name, &now)?;
            let mut stored = before.clone().unwrap_or_default();
            let outcome = work(&mut stored, now.boot)?;
            if stored != before.unwrap_or_default() {
                self.save(db, name, &stored, &now)?;
            }
            Ok(outcome)
        })
    }

    fn load(&self, db: &Connection, name: &Name, now: &Moment) -> Step<Option<StoredRegister>> {
        let found = db
            .prepare_cached(
                "SELECT value, version, stamp, fence, expires_boot, expires_ns, expires_wall FROM register WHERE namespace = ?1 AND name = ?2",
            )?
            .query_row([self.namespace.as_str(), name.as_str()], |row| decode(row, self.boot, now))
            .optional()?;
        Ok(found)
    }

    fn save(&self, db: &Connection, name: &Name, stored: &StoredRegister, now: &Moment) -> Step<()> {
        let wall = stored.expires.map(|at| now.wall.saturating_add(at.saturating_sub(now.boot)));
        db.prepare_cached("INSERT OR REPLACE INTO register VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
            .execute(params![
                self.namespace,
                name.as_str(),
                stored.value.as_deref(),
                sql(stored.version),
                stored.stamp.map(u64::cast_signed),
                encode_fence(&stored.fence),
                stored.expires.map(|_| self.boot.as_bytes()),
                stored.expires.map(sql),
                wall.map(sql),
            ])?;
        Ok(())
    }

    /// Works with the connection that writes, under the registers' lock.
    fn with_writer<T>(&self, work: impl FnOnce(&Connection) -> Step<T>) -> Result<T> {
        let mut writer = self.writer.lock();
        if !lock_blocking(&self.lock) {
            return Err(error(ErrorKind::Unavailable, "the registers' lock cannot be taken"));
        }
        let _unlock = Unlock(&self.lock);
        if writer.is_none() {
            *writer = Some(self.open()?);
        }
        let Some((db, place)) = writer.as_ref() else {
            return Err(error(ErrorKind::Internal, "no writer"));
        };
        place.check()?;
        work(db).map_err(|fault| fault.at(&self.path))
    }

    /// Who has written here and finds no file does not read an empty one: it was taken away.
    fn check_writers_place(&self) -> Result<()> {
        match self.writer.try_lock().as_deref() {
            Some(Some((_, place))) => place.check(),
            _ => Ok(()),
        }
    }

    /// Reads a snapshot; `None` if nothing was ever written. Never waits for a lock, and never
    /// makes a database: only a writer does.
    fn look<T>(&self, work: impl FnOnce(&Connection) -> Step<T>) -> Result<Option<T>> {
        let mut reader = self.reader.lock();
        if reader.is_none() {
            if !self.path.exists() {
                self.check_writers_place()?;
                return Ok(None);
            }
            match database::open(&self.path, &REGISTERS).map_err(|fault| fault.at(&self.path))? {
                Opened::Fresh(_) => return Ok(None),
                Opened::Ready(db) => {
                    tune(&db).map_err(|fault| fault.at(&self.path))?;
                    *reader = Some((db, Place::of(&self.path)?));
                }
            }
        }
        let Some((db, place)) = reader.as_ref() else {
            return Err(error(ErrorKind::Internal, "no reader"));
        };
        place.check()?;
        work(db).map(Some).map_err(|fault| fault.at(&self.path))
    }

    /// Opens the database to write, making it if need be. Call under the lock.
    fn open(&self) -> Result<(Connection, Place)> {
        let is_new = !self.path.exists();
        let open = || -> Step<Connection> {
            let db = database::open_or_make(&self.path, &REGISTERS, |_| Ok(()))?;
            tune(&db)?;
            Ok(db)
        };
        let db = open().map_err(|fault| fault.at(&self.path))?;
        if is_new {
            let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
            synced.map_err(|problem| of_io(problem, "sync", &self.folder))?;
        }
        Ok((db, Place::of(&self.path)?))
    }
}

fn tune(db: &Connection) -> Step<()> {
    db.pragma_update(None, "synchronous", "full")?;
    // Or the last one to close would wait for the disk, in a drop.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

struct Unlock<'a>(&'a File);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, rustix::fs::FlockOperation::Unlock);
    }
}
