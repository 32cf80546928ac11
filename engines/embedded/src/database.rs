use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Fault, Step, error, of_io};
use crate::folder::open_private;

/// One of the folder's two databases.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Marks the file as ours; SQLite keeps it in the header.
    pub(crate) application_id: i32,
    pub(crate) schema: &'static str,
    /// Small pages make small commits; rows of megabytes want large ones.
    pub(crate) page_size: u32,
}

/// The version of both schemas.
const VERSION: i32 = 1;
/// Ours never wait for each other here, they queue at a file lock; this is for foreign tools.
const BUSY: Duration = Duration::from_secs(2);

/// A database file that was opened.
pub(crate) enum Opened {
    /// Ours, with its tables.
    Ready(Connection),
    /// Without any table yet.
    Fresh(Connection),
}

/// Opens the file, and checks that it is ours before anything is changed in it.
pub(crate) fn open(path: &Path, kind: &Kind) -> Step<Opened> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        // Each connection is used by one thread at a time, under a mutex of ours.
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    db.set_prepared_statement_cache_capacity(64);
    // Or a statement is planned anew each time a value is bound to it: half of a verb's time.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let (application, version, tables): (i32, i32, i64) = db.query_row(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    if application == 0 && version == 0 && tables == 0 {
        return Ok(Opened::Fresh(db));
    }
    if application != kind.application_id {
        return Err(foreign(path).into());
    }
    if version != VERSION {
        return Err(newer(path, version).into());
    }
    Ok(Opened::Ready(db))
}

/// Opens the file and makes its tables if need be. Call under a lock.
pub(crate) fn open_or_make(
    path: &Path,
    kind: &Kind,
    also: impl FnOnce(&Connection) -> Step<()>,
) -> Step<Connection> {
    if !path.exists() {
        // SQLite would make it readable for everyone; its other files follow this one's rights.
        open_private(path, OpenOptions::new().create(true).truncate(false))
            .map_err(|problem| of_io(problem, "make", path))?;
    }
    let db = match open(path, kind)? {
        Opened::Ready(db) => return Ok(db),
        Opened::Fresh(db) => db,
    };
    db.pragma_update(None, "page_size", kind.page_size)?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.execute_batch("BEGIN IMMEDIATE")?;
    db.execute_batch(kind.schema)?;
    also(&db)?;
    db.pragma_update(None, "user_version", VERSION)?;
    db.pragma_update(None, "application_id", kind.application_id)?;
    db.execute_batch("COMMIT")?;
    Ok(db)
}

/// Runs `work` in one transaction: all of it happens, or nothing.
pub(crate) fn transact<T>(db: &Connection, begin: &str, work: impl FnOnce() -> Step<T>) -> Step<T> {
    db.prepare_cached(begin)?.execute([])?;
    let open = OpenTransaction(db);
    let outcome = work()?;
    let committed = db.prepare_cached("COMMIT")?.execute([]);
    if let Err(problem) = committed {
        return Err(open.failed_to_commit(problem));
    }
    Ok(outcome)
}

/// Rolls back when dropped, also by a panic.
struct OpenTransaction<'a>(&'a Connection);

impl OpenTransaction<'_> {
    /// A commit that fails for want of room had no effect; after any other failure nobody knows
    /// what reached the file.
    fn failed_to_commit(self, problem: rusqlite::Error) -> Fault {
        let known = matches!(
            problem.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DiskFull | rusqlite::ErrorCode::DatabaseBusy)
        );
        if known {
            return problem.into();
        }
        let path = self.0.path().unwrap_or_default().to_owned();
        Fault::Error(Fault::from(problem).at(Path::new(&path)).with_unknown_effect())
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

fn foreign(path: &Path) -> Error {
    error(
        ErrorKind::Corrupt,
        format!("{} belongs to another program; give the engine a folder of its own", path.display()),
    )
}

fn newer(path: &Path, version: i32) -> Error {
    error(
        ErrorKind::Corrupt,
        format!(
            "{} was made by a newer palisade (schema {version}, this one reads {VERSION}); update this program",
            path.display()
        ),
    )
}

/// Which file a path named when it was opened.
///
/// SQLite goes on writing to a file that was deleted or replaced, and so would we, alone: two
/// would hold one lock. The path is asked and never opened a second time: closing any descriptor
/// of the file would drop SQLite's own locks on it (fcntl(2)).
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    file: (u64, u64),
}

impl Place {
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let file = identity(path).ok_or_else(|| vanished(path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn check(&self) -> Result<()> {
        if identity(&self.path) == Some(self.file) { Ok(()) } else { Err(vanished(&self.path)) }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

pub(crate) fn vanished(path: &Path) -> Error {
    error(
        ErrorKind::Unavailable,
        format!("{} was deleted or replaced while in use; restart this program", path.display()),
    )
}
