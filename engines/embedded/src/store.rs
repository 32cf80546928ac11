use std::fs;
use std::path::Path;

use palisade_core::{Result, Source};
use rusqlite::Connection;
use uuid::Uuid;

use crate::config::Sync as Syncing;
use crate::database::{self, Kind, Opened, Place};
use crate::error::{Step, of_io};
use crate::folder::Folder;
use crate::ledger::{Aftermath, Ledger, Scene};
use crate::rows::sql;
use crate::session::Sessions;
use crate::tokens::{Header, TokenFile};

const CLAIMS: Kind = Kind {
    application_id: i32::from_be_bytes(*b"PalC"),
    schema: include_str!("../schema/claims.sql"),
    page_size: 1024,
};

/// The claims' database and the number line: what one write transaction decides with.
#[derive(Debug)]
pub(crate) struct Store {
    db: Connection,
    tokens: TokenFile,
    place: Place,
}

impl Store {
    /// Opens the store as it stands in this boot; `None` if it must be [prepared](prepare) first.
    pub(crate) fn open(folder: &Folder, boot: Uuid, sync: Syncing) -> Result<Option<Self>> {
        if !folder.is_marked()? {
            return Ok(None);
        }
        let tokens = match TokenFile::open(&folder.tokens())? {
            Some((tokens, header)) if header.boot == boot => tokens,
            _ => return Ok(None),
        };
        let path = folder.claims();
        if !path.exists() {
            return Ok(None);
        }
        let db = match database::open(&path, &CLAIMS).map_err(|fault| fault.at(&path))? {
            Opened::Ready(db) => db,
            Opened::Fresh(_) => return Ok(None),
        };
        tune(&db, sync).map_err(|fault| fault.at(&path))?;
        Ok(Some(Self { db, tokens, place: Place::of(&path)? }))
    }

    pub(crate) fn source(&self) -> Source {
        self.tokens.source()
    }

    /// A second connection that reads while the first one writes.
    pub(crate) fn reader(path: &Path) -> Result<Connection> {
        let open = || -> Step<Connection> {
            match database::open(path, &CLAIMS)? {
                Opened::Ready(db) => {
                    db.pragma_update(None, "query_only", true)?;
                    Ok(db)
                }
                Opened::Fresh(_) => Err(database::vanished(path).into()),
            }
        };
        open().map_err(|fault| fault.at(path))
    }

    /// Decides something in one transaction. Call under the write lock.
    pub(crate) fn transact<T>(
        &self,
        scene: &Scene<'_>,
        work: impl FnOnce(&mut Ledger<'_>) -> Step<T>,
    ) -> Result<(T, Aftermath)> {
        self.place.check()?;
        let run = || {
            let mut ledger = Ledger::new(&self.db, self.tokens.numbers(), scene);
            let outcome = work(&mut ledger)?;
            Ok((outcome, ledger.finish()?))
        };
        database::transact(&self.db, "BEGIN IMMEDIATE", run).map_err(|fault| fault.at(self.place.path()))
    }
}

/// Makes the folder fit for this boot. Call under the write lock.
///
/// The order counts: the number line moves on last, so that whoever is killed on the way leaves a
/// folder that the next one prepares again.
pub(crate) fn prepare(folder: &Folder, boot: Uuid) -> Result<()> {
    if !folder.is_marked()? {
        folder.mark()?;
    }
    let path = folder.claims();
    let make = |floor| make_claims(&path, boot, floor).map_err(|fault| fault.at(&path));
    match TokenFile::open(&folder.tokens())? {
        Some((_, header)) if header.boot == boot => make(header.ceiling),
        Some((tokens, header)) => {
            clear(folder)?;
            make(header.advanced(boot).ceiling)?;
            tokens.advance(header, boot)
        }
        None => {
            // Lost, or never made. Claims of this boot are still good, and tell how far it was.
            let known = floor_of(&path, boot);
            if known.is_none() {
                clear(folder)?;
            }
            let header = Header::new(boot, known.unwrap_or(0));
            make(header.advanced(boot).ceiling)?;
            TokenFile::create(&folder.tokens(), header)?;
            folder.sync().map_err(|problem| of_io(problem, "sync", folder.path()))
        }
    }
}

fn make_claims(path: &Path, boot: Uuid, floor: u64) -> Step<()> {
    let db = database::open_or_make(path, &CLAIMS, |db| {
        db.execute("INSERT INTO meta VALUES ('boot', ?1), ('floor', 0)", [boot.as_bytes()])?;
        Ok(())
    })?;
    db.execute("UPDATE meta SET value = max(value, ?1) WHERE key = 'floor'", [sql(floor)])?;
    Ok(())
}

/// Removes what was claimed in another boot: no holder outlived it, and after a power loss the
/// unsynced file may be damaged.
fn clear(folder: &Folder) -> Result<()> {
    Sessions::new(folder.sessions()).clear();
    for suffix in ["-wal", "-shm", ""] {
        let mut path = folder.claims().into_os_string();
        path.push(suffix);
        match fs::remove_file(&path) {
            Err(problem) if problem.kind() != std::io::ErrorKind::NotFound => {
                return Err(of_io(problem, "remove", Path::new(&path)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The greatest number that the claims of this boot know of.
fn floor_of(path: &Path, boot: Uuid) -> Option<u64> {
    const GREATEST: &str = "SELECT max((SELECT value FROM meta WHERE key = 'floor'), (SELECT ifnull(max(max(seq, token)), 0) FROM claim))";
    if !path.exists() {
        return None;
    }
    let Ok(Opened::Ready(db)) = database::open(path, &CLAIMS) else { return None };
    let made_in: [u8; 16] =
        db.query_row("SELECT value FROM meta WHERE key = 'boot'", [], |row| row.get(0)).ok()?;
    if made_in != *boot.as_bytes() {
        return None;
    }
    let floor: i64 = db.query_row(GREATEST, [], |row| row.get(0)).ok()?;
    u64::try_from(floor).ok()
}

fn tune(db: &Connection, sync: Syncing) -> Step<()> {
    let level = match sync {
        Syncing::Normal => "off",
        Syncing::Full => "full",
    };
    db.pragma_update(None, "synchronous", level)?;
    db.pragma_update(None, "temp_store", "memory")?;
    Ok(())
}
