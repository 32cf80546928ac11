use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palisade_core::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use uuid::Uuid;

use crate::error::{error, of_io};

/// The version of the folder's layout that this crate reads and writes.
const FORMAT: u32 = 1;
const FORMAT_MAGIC: &str = "palisade-embedded";

/// The longest path of a folder: SQLite opens no file whose path has 512 bytes.
const MAX_PATH: usize = 480;

/// A folder that was checked: it exists, lies on a local file system, and is of our format or
/// still empty.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder if need be, and checks that locks and wake-ups work in it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = absolute(path)?;
        make(&path)?;
        let folder = Self { path };
        folder.check_file_system()?;
        folder.check_owner()?;
        make(&folder.sessions())?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn claims(&self) -> PathBuf {
        self.path.join("claims.db")
    }

    pub(crate) fn registers(&self) -> PathBuf {
        self.path.join("registers.db")
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.path.join("tokens")
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.path.join("sessions")
    }

    /// Opens one of the files that exist only to be locked.
    pub(crate) fn lock_file(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        open_private(&path, OpenOptions::new().create(true).truncate(false))
            .map_err(|problem| of_io(problem, "open", &path))
    }

    /// Whether the format marker is there; an error if it is of a newer format, or not ours.
    pub(crate) fn is_marked(&self) -> Result<bool> {
        let path = self.path.join("FORMAT");
        let mut text = String::new();
        match File::open(&path).and_then(|file| file.take(256).read_to_string(&mut text)) {
            Ok(_) => check_format(text.trim_end(), &path).map(|()| true),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(problem) if problem.kind() == io::ErrorKind::InvalidData => Err(not_ours(&path)),
            Err(problem) => Err(of_io(problem, "read", &path)),
        }
    }

    /// Writes the format marker so that it is there whole or not at all. Call under the write lock.
    pub(crate) fn mark(&self) -> Result<()> {
        let path = self.path.join("FORMAT");
        let half = self.path.join("FORMAT.new");
        let write = || -> io::Result<()> {
            let mut file = open_private(&half, OpenOptions::new().create(true).truncate(true))?;
            writeln!(file, "{FORMAT_MAGIC} {FORMAT}")?;
            file.sync_all()?;
            fs::rename(&half, &path)?;
            self.sync()
        };
        write().map_err(|problem| of_io(problem, "write", &path))
    }

    /// Makes files that were created here outlive a power loss.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// All of one folder run as one user. Another's files would be closed to the rest: `sudo
    /// palisade ls` must not lock a service out of its own folder, and root is not special here.
    fn check_owner(&self) -> Result<()> {
        let stat = rustix::fs::stat(&self.path).map_err(|problem| of_io(problem, "look at", &self.path))?;
        let (owner, this) = (stat.st_uid, rustix::process::geteuid().as_raw());
        if owner == this {
            return Ok(());
        }
        let path = self.path.display();
        let message = format!(
            "{path} belongs to user {owner} and this process runs as user {this}, whose files would be closed to the others; run it as user {owner}, or choose another folder"
        );
        Err(error(ErrorKind::Denied, message))
    }

    fn check_file_system(&self) -> Result<()> {
        let fs = rustix::fs::statfs(&self.path).map_err(|problem| of_io(problem, "look at", &self.path))?;
        // The magic is 32 bits wide everywhere; the field's type is not.
        #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "only the bits count")]
        match shared_file_system(fs.f_type as u32) {
            None => Ok(()),
            Some(name) => Err(error(
                ErrorKind::Unsupported,
                format!(
                    "{} lies on {name}: file locks and wake-ups do not reach other machines there, and this engine is for one host; use a local folder, or a server engine such as redis: or etcd:",
                    self.path.display()
                ),
            )),
        }
    }
}

/// Takes a file lock within `limit`, without a deadline that the kernel would keep for us.
pub(crate) fn lock_within(file: &File, path: &Path, limit: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(1)),
            Err(Errno::WOULDBLOCK) => return Err(lock_is_held(file, path, limit)),
            Err(Errno::INTR) => {}
            Err(problem) => return Err(of_io(problem, "lock", path)),
        }
    }
}

/// The error of one who waited in vain for a lock, naming the process that holds it.
pub(crate) fn lock_is_held(file: &File, path: &Path, limit: Duration) -> Error {
    let who = holder_of(file)
        .map_or_else(|| "another process".to_owned(), |pid| format!("process {pid} (stopped, or busy?)"));
    error(ErrorKind::Timeout, format!("{who} has held {} for more than {limit:?}", path.display()))
}

/// Who holds a file lock, as far as the kernel lists it in this PID namespace.
pub(crate) fn holder_of(file: &File) -> Option<u32> {
    let inode = rustix::fs::fstat(file).ok()?.st_ino.to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
        let mut fields = line.split_ascii_whitespace();
        let (kind, access) = (fields.nth(1)?, fields.nth(1)?);
        let (pid, place) = (fields.next()?, fields.next()?);
        let ours = kind == "FLOCK" && access == "WRITE" && place.rsplit(':').next() == Some(&inode);
        ours.then(|| pid.parse().ok()).flatten()
    })
}

/// Opens a file for reading and writing that only this user may touch.
pub(crate) fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.read(true).write(true).mode(0o600).open(path)
}

/// Which boot of the machine this is: what was claimed in another one has no holder any more.
pub(crate) fn boot_id(pretended: Option<&str>) -> Result<Uuid> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let read = || fs::read_to_string(PATH).map_err(|problem| of_io(problem, "read", Path::new(PATH)));
    let text = pretended.map_or_else(read, |text| Ok(text.to_owned()))?;
    Uuid::parse_str(text.trim())
        .map_err(|problem| error(ErrorKind::Unsupported, format!("{PATH} holds no boot id")).because(problem))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let invalid = |why: &str| error(ErrorKind::Invalid, format!("the folder {} {why}", path.display()));
    let text = path.to_str().ok_or_else(|| invalid("is not UTF-8 text"))?;
    if text.is_empty() {
        return Err(error(ErrorKind::Invalid, "the folder's path is empty"));
    }
    if text.contains('\0') {
        return Err(error(ErrorKind::Invalid, "the folder's path holds a NUL character"));
    }
    let path = std::path::absolute(path).map_err(|problem| of_io(problem, "resolve", path))?;
    if path.as_os_str().len() > MAX_PATH {
        let message = format!(
            "the folder's path has at most {MAX_PATH} bytes, this one has {}",
            path.as_os_str().len()
        );
        return Err(error(ErrorKind::Invalid, message));
    }
    Ok(path)
}

fn make(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            let message = format!("{} is a file; give the path of a folder", path.display());
            return Err(error(ErrorKind::Invalid, message));
        }
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {}
        Err(problem) => return Err(of_io(problem, "open", path)),
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|problem| of_io(problem, "make", path))
}

fn check_format(text: &str, path: &Path) -> Result<()> {
    let format = text.strip_prefix(FORMAT_MAGIC).and_then(|rest| rest.trim_start().parse::<u32>().ok());
    match format {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(error(
            ErrorKind::Corrupt,
            format!(
                "{} was made by a newer palisade (format {newer}, this one reads {FORMAT}); update this program",
                path.display()
            ),
        )),
        _ => Err(not_ours(path)),
    }
}

fn not_ours(path: &Path) -> Error {
    error(
        ErrorKind::Corrupt,
        format!("{} is not of Palisade; give the engine a folder of its own", path.display()),
    )
}

/// The name of a file system that is shared with other machines, by its magic (statfs(2), and
/// linux/magic.h). FUSE covers virtiofs and sshfs: whether its locks are local is unknowable.
fn shared_file_system(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => "SMB",
        0x0102_1997 => "9p, a folder shared by a virtual machine's host",
        0x6573_5546 => "FUSE (virtiofs, sshfs and the like)",
        0x00C3_6400 => "Ceph",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x564C => "NCP",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x786F_4256 => "a VirtualBox shared folder",
        0xBACB_ACBC => "a VMware shared folder",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_shared_file_systems_are_known_and_local_ones_pass() {
        for shared in [0x6969, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997, 0x6573_5546, 0x00C3_6400, 0x5346_414F] {
            assert!(shared_file_system(shared).is_some(), "{shared:#x}");
        }
        // ext4, xfs, btrfs, tmpfs, overlayfs, zfs
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1] {
            assert_eq!(shared_file_system(local), None, "{local:#x}");
        }
    }

    #[test]
    fn formats() {
        let path = Path::new("/x/FORMAT");
        assert!(check_format("palisade-embedded 1", path).is_ok());
        assert!(
            check_format("palisade-embedded 2", path).unwrap_err().to_string().contains("newer palisade")
        );
        for foreign in ["", "1", "palisade-embedded", "palisade-embedded one", "palisade-embedded 0"] {
            assert!(check_format(foreign, path).unwrap_err().to_string().contains("not of Palisade"));
        }
    }

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(holder_of(&file), None);
        flock(&file, FlockOperation::LockExclusive).unwrap();
        assert_eq!(holder_of(&file), Some(std::process::id()));
    }
}
