use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::FutureExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Mutex;

use super::{Local, Server, Survives, Target};
use crate::HelperProgram;
use crate::helper::Role;
use crate::history::FaultKind;
use crate::misuse::misuse;
use crate::remote::{ServerOptions, ServerProcess};

/// The memory engine in a server process of its own, reached over TCP: to try the faults of networks
/// without installing anything.
pub(super) const LOCAL: Local =
    Local { name: "memory", nodes: 1, start: |nodes, helper, _| start(nodes, helper.clone(), false).boxed() };

/// The same, but it is killed, and forgets: what every checker must notice.
#[cfg(feature = "planted-bugs")]
pub(super) const FORGETFUL: Local = Local {
    name: "forgetful",
    nodes: 1,
    start: |nodes, helper, _| start(nodes, helper.clone(), true).boxed(),
};

#[derive(Debug)]
struct Memory {
    address: SocketAddr,
    servers: Vec<Box<dyn Server>>,
    forgetful: bool,
}

async fn start(nodes: u32, helper: HelperProgram, forgetful: bool) -> Result<Box<dyn Target>> {
    if nodes != 1 {
        misuse!("the memory engine is one server, not {nodes} nodes");
    }
    let options = options();
    let process = ServerProcess::start(helper.command(Role::MemoryServer), None, &options).await?;
    let address = process.address();
    let server = MemoryServer { helper, address, process: Mutex::new(Some(process)) };
    Ok(Box::new(Memory { address, servers: vec![Box::new(server)], forgetful }))
}

/// One name for its tokens whatever happens, so that what it forgets counts as forgotten.
fn options() -> ServerOptions {
    ServerOptions { source: Some("local-memory".to_owned()), epoch: 0, grace: Duration::ZERO }
}

impl Target for Memory {
    fn name(&self) -> String {
        if self.forgetful { "local:forgetful" } else { "local:memory" }.to_owned()
    }

    fn url(&self, via: &[SocketAddr]) -> String {
        format!("remote://{}", via.first().unwrap_or(&self.address))
    }

    fn endpoints(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        (fault == FaultKind::Clock).then(|| "the memory server reads no wall clock".to_owned())
    }

    fn servers(&self) -> &[Box<dyn Server>] {
        &self.servers
    }

    /// A forgetful one says that it survives everything, as its like do.
    fn survives(&self) -> Survives {
        if self.forgetful { Survives::Wipe } else { Survives::Stop }
    }
}

#[derive(Debug)]
struct MemoryServer {
    helper: HelperProgram,
    address: SocketAddr,
    process: Mutex<Option<ServerProcess>>,
}

impl MemoryServer {
    async fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process.lock().await;
        let pid =
            process.as_ref().and_then(ServerProcess::id).and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        Ok(kill_process(pid.context("the memory server ended by itself")?, signal)?)
    }
}

#[async_trait]
impl Server for MemoryServer {
    fn name(&self) -> String {
        "memory server".to_owned()
    }

    async fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP).await
    }

    async fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT).await
    }

    async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    async fn start(&self, _wiped: bool) -> Result<()> {
        let command = self.helper.command(Role::MemoryServer);
        let process = ServerProcess::start(command, Some(self.address), &options()).await?;
        *self.process.lock().await = Some(process);
        Ok(())
    }
}
