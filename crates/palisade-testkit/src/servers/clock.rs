use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Weak};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use tempfile::TempDir;

const SOURCE: &str = include_str!("clock_shim.c");

/// A library that is loaded into a server to put its wall clock out of time.
///
/// Faking libraries of distributions fail on servers that bring an allocator of their own.
#[derive(Debug)]
pub(super) struct Shim {
    folder: TempDir,
}

impl Shim {
    /// Builds the library, once for all servers that live at one time.
    ///
    /// # Errors
    /// There is no C compiler, or it fails.
    pub(super) fn build() -> Result<Arc<Self>> {
        static BUILT: Mutex<Weak<Shim>> = Mutex::new(Weak::new());
        let mut built = BUILT.lock();
        if let Some(shim) = built.upgrade() {
            return Ok(shim);
        }
        let folder = tempfile::Builder::new().prefix("palisade-clock").tempdir()?;
        // A server may run as another user than we do.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let source = folder.path().join("shim.c");
        fs::write(&source, SOURCE)?;
        let shim = Self { folder };
        let compiled = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .args([&shim.library(), &source])
            .arg("-ldl")
            .output()
            .context("cc, which builds the library that shifts a server's clock, is missing: apt-get install gcc libc6-dev")?;
        let said = String::from_utf8_lossy(&compiled.stderr);
        ensure!(compiled.status.success(), "the library that shifts a server's clock was not built: {said}");
        let shim = Arc::new(shim);
        *built = Arc::downgrade(&shim);
        Ok(shim)
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("shim.so")
    }
}

/// The wall clock of one server.
#[derive(Debug)]
pub(super) struct Clock {
    shim: Arc<Shim>,
    /// How far it is ahead, in nanoseconds. Never shortened: the server has it mapped.
    file: File,
    path: PathBuf,
}

impl Clock {
    /// A clock that is kept in `folder` and goes right, for now.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let shim = Shim::build()?;
        let path = folder.join("clock");
        fs::write(&path, 0_i64.to_ne_bytes())?;
        let file = File::options().write(true).open(&path)?;
        Ok(Self { shim, file, path })
    }

    /// Has `command` go by this clock.
    pub(super) fn put_on(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.shim.library()).env("PALISADE_CLOCK_SHIFT", &self.path);
    }

    /// Sets it so many seconds ahead of the true time, or behind it.
    pub(super) fn shift(&self, seconds: i64) -> Result<()> {
        const NANOS: i64 = 1_000_000_000;
        let nanos = seconds.checked_mul(NANOS).context("no clock goes that far")?;
        Ok(self.file.write_all_at(&nanos.to_ne_bytes(), 0)?)
    }
}
