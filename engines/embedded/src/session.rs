use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use palisade_core::{Owner, Result};
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::error::of_io;
use crate::folder::open_private;

/// The identity of one engine value: 16 hexadecimal digits, the name of its files.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionId([u8; 16]);

impl SessionId {
    fn random() -> Self {
        let mut digits = [0; 32];
        Uuid::new_v4().simple().encode_lower(&mut digits);
        let mut id = [0; 16];
        // The last ones: the first half holds the version, which is no randomness.
        id.copy_from_slice(&digits[16..]);
        Self(id)
    }

    /// The id that `text` spells, if it is one of ours: it becomes part of a path.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; 16] = text.try_into().ok()?;
        id.iter().all(u8::is_ascii_hexdigit).then_some(Self(id))
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The files of all sessions, and the question whether one is alive.
///
/// A session is alive while its lock file is locked. The kernel drops the lock with the last copy
/// of the descriptor, however the process ends.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    folder: PathBuf,
}

impl Sessions {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Starts a session: its lock file, locked for as long as any process has the descriptor.
    ///
    /// The file gets its name only once it is locked: a cleaner that found it unlocked would take
    /// it for a dead session's, and remove it under a living one.
    pub(crate) fn start(&self) -> Result<(SessionId, File)> {
        let id = SessionId::random();
        let (path, unlocked) = (self.lock_path(id), self.folder.join(format!("{}.new", id.as_str())));
        let start = || -> io::Result<File> {
            let mut file = open_private(&unlocked, OpenOptions::new().create_new(true))?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // For people who look at the folder; nothing reads it.
            let owner = Owner::this_process();
            writeln!(file, "pid {} on {}", owner.pid, owner.host)?;
            fs::rename(&unlocked, &path)?;
            Ok(file)
        };
        let started = start().inspect_err(|_| drop(fs::remove_file(&unlocked)));
        Ok((id, started.map_err(|problem| of_io(problem, "make", &path))?))
    }

    pub(crate) fn lock_path(&self, id: SessionId) -> PathBuf {
        self.folder.join(format!("{}.lock", id.as_str()))
    }

    pub(crate) fn socket_path(&self, id: SessionId) -> PathBuf {
        self.folder.join(format!("{}.sock", id.as_str()))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the session is over. In doubt it is not: its claims then end by their TTL.
    ///
    /// Opened for reading only, so that closing it here wakes nobody who waits for a writer's
    /// close; locked shared, so that two who ask at once do not take each other for the session.
    pub(crate) fn is_dead(&self, id: SessionId) -> bool {
        match File::open(self.lock_path(id)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            Err(problem) => problem.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Removes the files of a session that is over.
    pub(crate) fn remove(&self, id: SessionId) {
        // The lock file last: while it is there, someone may still find the session and clean up.
        let _ = fs::remove_file(self.socket_path(id));
        let _ = fs::remove_file(self.lock_path(id));
    }

    /// Ends a session that could not remove its claims. Its files stay, so that they are found.
    pub(crate) fn abandon(&self, id: SessionId, lifeline: &File) {
        let _ = flock(lifeline, FlockOperation::Unlock);
        // Those who watch it are told of a writer's close, and nothing else.
        let _ = OpenOptions::new().write(true).open(self.lock_path(id));
    }

    /// Up to `limit` sessions that are over but left their files. Asks about a bounded number, so
    /// that opening a folder costs the same however many share it.
    pub(crate) fn dead(&self, limit: usize) -> Vec<SessionId> {
        const ASKED: usize = 256;
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| SessionId::parse(entry.file_name().as_bytes().strip_suffix(b".lock")?))
            .take(ASKED)
            .filter(|id| self.is_dead(*id))
            .take(limit)
            .collect()
    }

    /// Removes every session's files: nothing of another boot is alive.
    pub(crate) fn clear(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> (tempfile::TempDir, Sessions) {
        let folder = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(folder.path().to_owned());
        (folder, sessions)
    }

    #[test]
    fn a_session_lives_as_long_as_any_copy_of_its_descriptor() {
        let (_folder, sessions) = sessions();
        let (id, file) = sessions.start().unwrap();
        assert!(!sessions.is_dead(id));
        let copy = file.try_clone().unwrap();
        drop(file);
        assert!(!sessions.is_dead(id));
        drop(copy);
        assert!(sessions.is_dead(id));
        assert_eq!(sessions.dead(10), [id]);
        sessions.remove(id);
        assert!(sessions.is_dead(id));
        assert!(sessions.dead(10).is_empty());
    }

    #[test]
    fn a_session_that_is_just_starting_is_never_taken_for_a_dead_one() {
        let (_folder, sessions) = sessions();
        let cleaner = sessions.clone();
        let cleaning = std::thread::spawn(move || {
            for _ in 0..3000 {
                cleaner.dead(100).into_iter().for_each(|id| cleaner.remove(id));
            }
        });
        let mut alive = Vec::new();
        while !cleaning.is_finished() {
            alive.push(sessions.start().unwrap());
            if alive.len() > 16 {
                let (id, file) = alive.remove(0);
                assert!(rustix::fs::fstat(&file).unwrap().st_nlink > 0);
                drop(file);
                sessions.remove(id);
            }
        }
        assert!(alive.iter().all(|(id, _)| !sessions.is_dead(*id)));
    }

    #[test]
    fn only_ids_become_paths() {
        assert!(SessionId::parse(b"0123456789abcdef").is_some());
        for bad in [&b"../../etc/passwd"[..], b"", b"0123456789abcdeg", b"0123456789abcdef0"] {
            assert!(SessionId::parse(bad).is_none());
        }
    }
}
