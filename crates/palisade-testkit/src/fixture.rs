use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palisade_core::memory::MemoryStore;
use palisade_core::{Engine, Result};

/// How the suite reaches an engine: all that a new engine adds to be tested.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// What to call the engine in the report.
    fn name(&self) -> &str;

    /// Opens a new connection, with a session of its own, to the one store under test.
    async fn connect(&self, namespace: &str) -> Result<Arc<dyn Engine>>;

    /// Where another process finds the same store and namespace; `None` if it cannot.
    fn url(&self, _namespace: &str) -> Option<String> {
        None
    }

    /// Why the engine cannot be restarted from here; `None` if [`Fixture::restart`] works.
    fn cannot_restart(&self) -> Option<&'static str> {
        Some("the fixture has no way to restart the engine")
    }

    /// Stops the engine as a crash would, and starts it again. No case runs meanwhile.
    async fn restart(&self) -> Result<()> {
        Ok(())
    }

    /// A TTL that the engine honours as it is, short enough to wait for.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(300)
    }

    /// How late the engine may notice that a TTL has passed.
    fn slack(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// How long a single step may take before it counts as hung.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How many tasks and rounds the workloads use, in percent: a slow engine asks for less.
    fn effort(&self) -> u32 {
        100
    }
}

/// The memory engine under test.
#[derive(Debug, Clone, Default)]
pub struct MemoryFixture(MemoryStore);

#[async_trait]
impl Fixture for MemoryFixture {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn connect(&self, namespace: &str) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(self.0.connect(namespace)))
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        Some("nothing of the memory engine outlives its process")
    }
}
