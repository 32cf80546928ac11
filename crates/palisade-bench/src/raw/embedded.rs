//! The embedded engine's floor: bare SQLite commits, a bare datagram, a bare file lock.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use palisade_core::percent_decode;
use parking_lot::Mutex;
use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tokio::net::UnixDatagram;

use super::{Floors, RawClient, RawLimit, Setting};

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let place = Place::of_url(url)?;
    // Inside the engine's own folder, so that both are on one disk.
    fs::create_dir_all(&place.folder).with_context(|| format!("cannot make {}", place.folder.display()))?;
    let own = tempfile::Builder::new().prefix("bench-").tempdir_in(&place.folder)?;
    let raw =
        Embedded { folder: own.path().to_owned(), synced: place.synced, engine: Some(place), own: Some(own) };
    raw.connect()?.make_table()?;
    Ok(Arc::new(raw))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    let (sync, folder) = address.split_once(':').context("an address has two parts")?;
    Ok(Arc::new(Embedded { folder: folder.into(), synced: sync == "full", engine: None, own: None }))
}

/// Where the engine is and whether its commits reach the disk, from its URL.
#[derive(Debug, Clone)]
struct Place {
    folder: PathBuf,
    options: String,
    synced: bool,
}

impl Place {
    /// Of a URL that the engine itself has accepted.
    fn of_url(url: &str) -> Result<Self> {
        let rest = url.split_once(':').context("an engine URL has a scheme")?.1;
        let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
        let synced = options.split('&').any(|option| option == "sync=full");
        Ok(Self { folder: percent_decode(path)?.into(), options: options.to_owned(), synced })
    }

    fn with_sync(&self) -> String {
        let path = self.folder.display().to_string().replace('%', "%25").replace('?', "%3F");
        let others =
            self.options.split('&').filter(|option| !option.is_empty() && !option.starts_with("sync="));
        let options: Vec<&str> = others.chain(["sync=full"]).collect();
        format!("file:{path}?{}", options.join("&"))
    }
}

#[derive(Debug)]
struct Embedded {
    /// Where the bare files are.
    folder: PathBuf,
    /// Whether commits reach the disk.
    synced: bool,
    /// `None` in a worker, which needs only the files.
    engine: Option<Place>,
    /// Deletes the folder in the end.
    #[expect(dead_code, reason = "kept until it is dropped")]
    own: Option<TempDir>,
}

impl Embedded {
    fn sync(&self) -> &'static str {
        if self.synced { "full" } else { "off" }
    }

    fn connect(&self) -> Result<Bare> {
        let database = Connection::open(self.folder.join("raw.db"))?;
        // The engine's own choices, so that the ratio shows what it adds and not what it chose.
        database.pragma_update(None, "page_size", 1024)?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.pragma_update(None, "synchronous", self.sync())?;
        Ok(Bare {
            database: Mutex::new(Database { connection: database, next: 0 }),
            folder: self.folder.clone(),
            line: Mutex::default(),
            lock: Mutex::default(),
            waiter: Arc::default(),
        })
    }
}

#[async_trait]
impl RawLimit for Embedded {
    fn floors(&self) -> Floors {
        Floors {
            pair: "two bare SQLite commits of the same row",
            turn: "two bare commits and a datagram to the next process",
            hold: "flock(2), which the kernel frees",
            keep: "one bare transaction that updates each row",
        }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.sync(), self.folder.display())
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        Ok(Arc::new(self.connect()?))
    }

    /// The commits of all processes. SQLite counts them in the header of the WAL's index:
    /// `iChange`, the third word in the machine's own byte order (<https://sqlite.org/walformat.html>).
    async fn requests(&self) -> Result<Option<u64>> {
        let Some(place) = &self.engine else { return Ok(None) };
        let Ok(index) = fs::read(place.folder.join("claims.db-shm")) else { return Ok(None) };
        let word = index.get(8..12).and_then(|word| word.try_into().ok());
        Ok(word.map(|word| u64::from(u32::from_ne_bytes(word))))
    }

    fn command(&self) -> Option<Vec<OsString>> {
        Some(vec!["flock".into(), self.folder.join("flock").into(), "true".into()])
    }

    fn settings(&self) -> Result<Vec<Setting>> {
        match &self.engine {
            Some(place) if !place.synced => {
                let url = place.with_sync();
                Ok(vec![Setting { name: "same key, synced", raw: open(&url)?, url }])
            }
            _ => Ok(Vec::new()),
        }
    }
}

struct Bare {
    database: Mutex<Database>,
    folder: PathBuf,
    /// The two ends that a process in the line has.
    line: Mutex<Option<Arc<Ends>>>,
    lock: Mutex<Option<File>>,
    /// The thread that is about to wait for the lock, or does: its folder below `/proc`.
    waiter: Arc<Mutex<Option<PathBuf>>>,
}

struct Database {
    connection: Connection,
    /// The arrival of the next row; each has its own, as the engine's have.
    next: i64,
}

/// As long as a real owner.
const OWNER: &str = r#"{"client":"0123456789ab","host":"bench-host","pid":12345}"#;

impl Database {
    fn run(&self, sql: &str) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn insert(&mut self, key: &str) -> Result<()> {
        self.next += 1;
        self.run("BEGIN IMMEDIATE")?;
        self.connection
            .prepare_cached(
                "INSERT INTO claim VALUES('', ?1, ?2, x'00112233445566778899aabbccddeeff', 'session', 1, ?2, ?2, ?3)",
            )?
            .execute((key, self.next, OWNER))?;
        self.run("COMMIT")
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.run("BEGIN IMMEDIATE")?;
        self.connection
            .prepare_cached("DELETE FROM claim WHERE namespace = '' AND resource = ?1 AND seq = ?2")?
            .execute((key, self.next))?;
        self.run("COMMIT")
    }
}

impl Bare {
    fn make_table(&self) -> Result<()> {
        self.database.lock().connection.execute_batch(
            "CREATE TABLE claim(namespace TEXT, resource TEXT, seq INTEGER, id BLOB, session TEXT, state INTEGER,
                token INTEGER, expires INTEGER, owner TEXT, PRIMARY KEY(namespace, resource, seq)) WITHOUT ROWID",
        )?;
        Ok(())
    }

    fn ends(&self) -> Result<Arc<Ends>> {
        self.line.lock().clone().context("this process is in no line")
    }
}

#[async_trait]
impl RawClient for Bare {
    async fn pair(&self, key: &str) -> Result<()> {
        let mut database = self.database.lock();
        database.insert(key)?;
        database.delete(key)
    }

    async fn join(&self, place: usize, of: usize) -> Result<()> {
        let mine = StdDatagram::bind_addr(&seat(&self.folder, place)?)?;
        mine.set_nonblocking(true)?;
        let ends = Ends { mine: UnixDatagram::from_std(mine)?, next: seat(&self.folder, (place + 1) % of)? };
        *self.line.lock() = Some(Arc::new(ends));
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        tell(&seat(&self.folder, 0)?)
    }

    async fn turn(&self) -> Result<()> {
        self.ends()?.mine.recv(&mut [0; 17]).await?;
        self.database.lock().insert("line")
    }

    async fn pass(&self) -> Result<()> {
        self.database.lock().delete("line")?;
        tell(&self.ends()?.next)
    }

    async fn hold(&self) -> Result<()> {
        let file = File::options().create(true).append(true).open(self.folder.join("hold.lock"))?;
        let waiter = Arc::clone(&self.waiter);
        let file = tokio::task::spawn_blocking(move || -> Result<File> {
            let thread = fs::read_link("/proc/thread-self").context("cannot tell which thread this is")?;
            *waiter.lock() = Some(Path::new("/proc").join(thread));
            let locked = flock(&file, FlockOperation::LockExclusive);
            *waiter.lock() = None;
            locked?;
            Ok(file)
        });
        *self.lock.lock() = Some(file.await??);
        Ok(())
    }

    async fn until_waiting(&self) -> Result<()> {
        loop {
            let thread = self.waiter.lock().clone();
            // Between telling its name and the end of flock(2), it sleeps nowhere else.
            if let Some(thread) = thread
                && sleeps(&fs::read_to_string(thread.join("stat"))?)
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn let_go(&self) -> Result<()> {
        self.lock.lock().take();
        Ok(())
    }

    async fn fill(&self, count: usize) -> Result<()> {
        let database = self.database.lock();
        database.run("BEGIN IMMEDIATE")?;
        database.run("DELETE FROM claim")?;
        for number in 0..count {
            database
                .connection
                .prepare_cached(
                    "INSERT INTO claim VALUES('', ?1, 1, x'00112233445566778899aabbccddeeff', 'session', 1, 1, 1, ?2)",
                )?
                .execute((format!("held/{number}"), OWNER))?;
        }
        database.run("COMMIT")
    }

    async fn keep(&self) -> Result<()> {
        let mut database = self.database.lock();
        database.next += 1;
        database.run("BEGIN IMMEDIATE")?;
        let names: Vec<String> = database
            .connection
            .prepare_cached("SELECT resource FROM claim")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for name in names {
            database
                .connection
                .prepare_cached(
                    "UPDATE claim SET expires = ?2 WHERE namespace = '' AND resource = ?1 AND seq = 1",
                )?
                .execute((name, database.next))?;
        }
        database.run("COMMIT")
    }
}

/// Whether a thread sleeps, by its line in `/proc`: the state follows its name in brackets, in which
/// there may be brackets.
fn sleeps(stat: &str) -> bool {
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

/// How a process in the line is told, and whom it tells.
struct Ends {
    mine: UnixDatagram,
    next: SocketAddr,
}

/// A place in the line: a socket without a file, whose name no long folder can make too long.
fn seat(folder: &Path, place: usize) -> Result<SocketAddr> {
    let own = folder.file_name().context("the folder has a name")?.to_string_lossy();
    Ok(SocketAddr::from_abstract_name(format!("palisade-{own}-{place}"))?)
}

fn tell(seat: &SocketAddr) -> Result<()> {
    match StdDatagram::unbound()?.send_to_addr(&[1; 17], seat) {
        // Who has had all its turns is gone; the line ends there.
        Err(problem) if problem.kind() == ErrorKind::ConnectionRefused => Ok(()),
        outcome => outcome.map(drop).context("cannot pass the turn on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_as_the_engine_reads_it() {
        let place = Place::of_url("file:/a%20b/c%3F?ttl=2s&sync=normal").unwrap();
        assert_eq!((place.folder.to_str(), place.synced), (Some("/a b/c?"), false));
        assert_eq!(place.with_sync(), "file:/a b/c%3F?ttl=2s&sync=full");
        assert!(Place::of_url(&place.with_sync()).unwrap().synced);
    }

    #[tokio::test]
    async fn who_waits_for_a_lock_is_known_to() {
        let home = tempfile::tempdir().unwrap();
        let raw = open(&format!("file:{}", home.path().display())).unwrap();
        let (holder, waiter) = (raw.client().await.unwrap(), raw.client().await.unwrap());
        holder.hold().await.unwrap();
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, waiter.until_waiting()).await.is_err(), "nobody waits yet");
        let waiting = tokio::spawn({
            let waiter = Arc::clone(&waiter);
            async move { waiter.hold().await }
        });
        waiter.until_waiting().await.unwrap();
        assert!(!waiting.is_finished());
        holder.let_go().await.unwrap();
        waiting.await.unwrap().unwrap();
        assert!(tokio::time::timeout(soon, waiter.until_waiting()).await.is_err(), "it has it by now");
    }

    #[test]
    fn a_thread_sleeps_whatever_it_is_called() {
        assert!(sleeps("12 (tokio-rt) S 1 2"));
        assert!(sleeps("12 (a) R (b) S 1 2"));
        assert!(!sleeps("12 (S) R 1 2"));
    }

    #[tokio::test]
    async fn the_turn_goes_round_and_nothing_stays_behind() {
        let home = tempfile::tempdir().unwrap();
        let url = format!("file:{}", home.path().display());
        let raw = open(&url).unwrap();
        let there = attach(&raw.address()).unwrap();
        let (first, second) = (raw.client().await.unwrap(), there.client().await.unwrap());
        first.join(0, 2).await.unwrap();
        second.join(1, 2).await.unwrap();
        raw.client().await.unwrap().start().await.unwrap();
        for _ in 0..2 {
            for member in [&first, &second] {
                member.turn().await.unwrap();
                member.pass().await.unwrap();
            }
        }
        first.pair("x").await.unwrap();
        first.fill(3).await.unwrap();
        first.keep().await.unwrap();
        drop((raw, there));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
