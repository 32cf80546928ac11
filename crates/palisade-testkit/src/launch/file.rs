use std::fs;
use std::net::SocketAddr;

use anyhow::Result;
use async_trait::async_trait;
use futures::{FutureExt, future};
use tempfile::TempDir;

use super::{Local, Target, no_server};
use crate::history::FaultKind;
use crate::misuse::misuse;

/// The embedded engine, in a folder that is gone afterwards.
pub(super) const LOCAL: Local =
    Local { name: "file", nodes: 1, start: |nodes, _, _| future::ready(start(nodes)).boxed() };

#[derive(Debug)]
struct Folder(TempDir);

fn start(nodes: u32) -> Result<Box<dyn Target>> {
    if nodes != 1 {
        misuse!("the embedded engine is one folder, not {nodes} nodes");
    }
    Ok(Box::new(Folder(tempfile::Builder::new().prefix("palisade-local").tempdir()?)))
}

#[async_trait]
impl Target for Folder {
    fn name(&self) -> String {
        "local:file".to_owned()
    }

    fn url(&self, _via: &[SocketAddr]) -> String {
        format!("file:{}", self.0.path().display())
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        no_server(fault, "the embedded engine")
    }

    /// A session's files go with it, also with one that was killed: whoever comes next clears them.
    async fn left_behind(&self) -> Result<Vec<String>> {
        let sessions = self.0.path().join("sessions");
        let names = fs::read_dir(sessions)?.flatten().map(|entry| entry.file_name());
        Ok(names.map(|name| format!("session file {}", name.display())).collect())
    }
}
