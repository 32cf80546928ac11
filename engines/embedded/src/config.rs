use std::path::PathBuf;
use std::time::Duration;

/// Where the folder is and how the engine treats it.
///
/// ```
/// use palisade_embedded::{EmbeddedConfig, Sync};
/// let config = EmbeddedConfig::new("/var/lib/shop/locks").namespace("billing").sync(Sync::Full);
/// # let _ = config;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbeddedConfig {
    /// The folder that all taking part share; made if it does not exist.
    pub folder: PathBuf,
    /// Separates tenants of one folder; the empty one is a namespace too.
    pub namespace: String,
    /// How much a claim costs the disk.
    pub sync: Sync,
    /// How long a verb may take before it fails with an unknown effect.
    pub call_timeout: Duration,
    /// Pretends that the machine was started under this id, for tests.
    #[doc(hidden)]
    pub boot_id: Option<String>,
}

/// When claims reach the disk. Register writes always do before they are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// Whenever the kernel likes. Nothing is lost by it: a claim ends with the boot it was made
    /// in, and the order of tokens is kept by a number that is synced ahead of its use.
    #[default]
    Normal,
    /// Before a claim is acknowledged, for those who want to read the last holder after a power
    /// loss. Costs a disk sync per verb.
    Full,
}

impl EmbeddedConfig {
    /// The folder with everything else at its default: no namespace, normal sync, 5 s per call.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            namespace: String::new(),
            sync: Sync::Normal,
            call_timeout: Duration::from_secs(5),
            boot_id: None,
        }
    }

    /// The same folder, seen from inside `namespace`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The same folder with claims synced like this.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// The same folder with calls bounded like this.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn boot_id(mut self, id: impl Into<String>) -> Self {
        self.boot_id = Some(id.into());
        self
    }
}
