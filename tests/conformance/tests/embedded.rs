//! The suite over the embedded engine: one folder, many connections and processes.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palisade_conformance::main_for;
use palisade_core::{Engine, Result};
use palisade_embedded::{EmbeddedConfig, EmbeddedEngine};
use palisade_testkit::{Fixture, Options};
use tempfile::TempDir;

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let taker = Some(env!("CARGO_BIN_EXE_palisade-taker").into());
    main_for(Embedded { folder }, Options { taker, ..Options::default() })
}

struct Embedded {
    folder: TempDir,
}

#[async_trait]
impl Fixture for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    async fn connect(&self, namespace: &str) -> Result<Arc<dyn Engine>> {
        let config = EmbeddedConfig::new(self.folder.path()).namespace(namespace);
        Ok(Arc::new(EmbeddedEngine::open(config).await?))
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(format!("file:{}?namespace={namespace}", self.folder.path().display()))
    }

    // Longer than the folder's lock takes to get while eight cases and their workloads run.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(800)
    }

    // There is no server to stop: a restart is that every connection has ended. The case closes
    // its own, and none of the others runs meanwhile.
    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }
}
