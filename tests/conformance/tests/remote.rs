//! The suite over the memory engine that is served over TCP by a process of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palisade_conformance::main_for;
use palisade_core::{Engine, Result};
use palisade_testkit::remote::{RemoteEngine, ServerOptions, ServerProcess};
use palisade_testkit::{Fixture, Options};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    // Lives until the suite is over: it watches the server's process.
    let runtime = Runtime::new().expect("the runtime starts");
    let program = Path::new(env!("CARGO_BIN_EXE_palisade-remote"));
    let server = runtime
        .block_on(ServerProcess::start(std::process::Command::new(program), None, &ServerOptions::default()))
        .expect("the server starts");
    let taker = Some(env!("CARGO_BIN_EXE_palisade-taker").into());
    let code = main_for(Remote { address: server.address() }, Options { taker, ..Options::default() });
    runtime.block_on(server.kill()).expect("the server ends");
    code
}

struct Remote {
    address: SocketAddr,
}

#[async_trait]
impl Fixture for Remote {
    fn name(&self) -> &'static str {
        "remote"
    }

    async fn connect(&self, namespace: &str) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(RemoteEngine::connect(self.address, namespace).await?))
    }

    fn url(&self, namespace: &str) -> Option<String> {
        Some(format!("remote://{}?namespace={namespace}", self.address))
    }

    // Longer than a request takes while eight cases and their workloads run.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        Some("nothing of the server outlives its process")
    }
}
