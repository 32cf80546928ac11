use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use palisade_core::{Error, ErrorKind};
use rusqlite::ErrorCode;
use rustix::io::Errno;

pub(crate) const ENGINE: &str = "embedded";

/// An error of this engine that had no effect.
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).on_engine(ENGINE)
}

/// What can go wrong inside a step; becomes an [`Error`] where the file it happened to is known.
#[derive(Debug)]
pub(crate) enum Fault {
    Db(rusqlite::Error),
    Error(Error),
}

pub(crate) type Step<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Db(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Fault {
    /// Says what the fault means for the database at `file`.
    pub(crate) fn at(self, file: &Path) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Db(problem) => of_sqlite(problem, file),
        }
    }
}

/// What to do with a database that cannot be read.
const PUT_ASIDE: &str = "stop the programs that use the folder and put the file aside (claims.db is made anew, registers.db must come from a backup)";

/// Says what a failed system call on `path` means.
pub(crate) fn of_io(problem: impl Into<io::Error>, doing: &str, path: &Path) -> Error {
    let problem = problem.into();
    let (kind, advice) = match problem.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            (ErrorKind::Denied, "; give this user write access to the folder, or choose another")
        }
        Some(Errno::ROFS) => (ErrorKind::Denied, "; the file system is read-only, choose another folder"),
        Some(Errno::NOSPC | Errno::DQUOT) => {
            (ErrorKind::Full, "; the disk or a quota is full, make room and try again")
        }
        Some(Errno::NOTDIR | Errno::EXIST) => {
            (ErrorKind::Invalid, "; a file is in the way, give the path of a folder")
        }
        Some(Errno::ISDIR) => (ErrorKind::Corrupt, "; a folder is in the way of a file, move it away"),
        Some(Errno::NAMETOOLONG | Errno::LOOP | Errno::INVAL) => {
            (ErrorKind::Invalid, "; choose another folder")
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            (ErrorKind::Unavailable, "; too many files are open, raise the limit (ulimit -n)")
        }
        _ => (ErrorKind::Unavailable, ""),
    };
    error(kind, format!("cannot {doing} {}: {problem}{advice}", path.display())).because(problem)
}

fn of_sqlite(problem: rusqlite::Error, file: &Path) -> Error {
    let shown = file.display();
    // SQLite says only that it cannot open a file; the system says why.
    if problem.sqlite_error_code() == Some(ErrorCode::CannotOpen)
        && let Err(cause) = OpenOptions::new().read(true).write(true).open(file)
    {
        return of_io(cause, "open", file);
    }
    let unreadable = matches!(
        problem,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
    );
    let (kind, message) = match problem.sqlite_error_code() {
        None if unreadable => {
            (ErrorKind::Corrupt, format!("{shown} holds a row that Palisade did not write: {problem}"))
        }
        Some(ErrorCode::DatabaseCorrupt) => (ErrorKind::Corrupt, format!("{shown} is damaged; {PUT_ASIDE}")),
        Some(ErrorCode::NotADatabase) => (
            ErrorKind::Corrupt,
            format!("{shown} is no database: it was overwritten, or is another program's; {PUT_ASIDE}"),
        ),
        Some(ErrorCode::DiskFull) => (ErrorKind::Full, full(file)),
        Some(ErrorCode::SystemIoFailure) if has_no_room(file) => (ErrorKind::Full, full(file)),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            ErrorKind::Denied,
            format!(
                "{shown} cannot be written; give this user write access to the folder, or choose another"
            ),
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            format!("{shown} is locked by a program that is not Palisade; end it and try again"),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
            (ErrorKind::Unavailable, format!("{shown} cannot be used now: {problem}"))
        }
        _ => (ErrorKind::Internal, format!("{shown}: {problem}")),
    };
    error(kind, message).because(problem)
}

fn full(file: &Path) -> String {
    format!("no room left to write {}; make room on the disk and try again", file.display())
}

/// SQLite reports a full disk as an I/O error where it grows its shared memory file.
fn has_no_room(file: &Path) -> bool {
    file.parent().and_then(|folder| rustix::fs::statvfs(folder).ok()).is_some_and(|fs| fs.f_bavail == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_name_the_path_and_what_to_do() {
        for (errno, kind, advice) in [
            (Errno::ACCESS, ErrorKind::Denied, "write access"),
            (Errno::ROFS, ErrorKind::Denied, "read-only"),
            (Errno::NOSPC, ErrorKind::Full, "make room"),
            (Errno::NOTDIR, ErrorKind::Invalid, "a file is in the way"),
        ] {
            let error = of_io(errno, "open", Path::new("/x/claims.db"));
            assert_eq!(error.kind(), kind);
            let message = error.to_string();
            assert!(message.contains("/x/claims.db") && message.contains(advice), "{message}");
        }
    }
}
