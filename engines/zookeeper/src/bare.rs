//! The bare requests that locks are made of, over the same wire: for whoever measures what the engine adds,
//! and for tests that do what other clients would.

use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Clock, Result, SystemClock};

use crate::config::{Acl, ZooKeeperConfig};
use crate::conn::Ear;
use crate::proto::{Kind, Part, create, delete, get_children, get_data, multi, set_data};
use crate::session::{Servers, Session};

/// One session, without anything on top.
#[derive(Debug)]
pub struct Bare(Arc<Session>);

/// One watch of it.
#[derive(Debug)]
pub struct BareWatch(Arc<Ear>);

impl Bare {
    /// Begins a session at any server.
    ///
    /// # Errors
    /// None can be reached.
    pub async fn connect(config: ZooKeeperConfig, timeout: Duration) -> Result<Self> {
        Session::open(&Arc::new(Servers::new(config)?), timeout).await.map(Self)
    }

    /// Makes an ephemeral node, numbered or not. Returns its path.
    ///
    /// # Errors
    /// The server says no.
    pub async fn create(&self, path: &str, numbered: bool) -> Result<String> {
        let kind = if numbered { Kind::Sequential } else { Kind::Ephemeral };
        Ok(self.0.ask(create(path, b"", kind, Acl::Open)).await?.created()?.0)
    }

    /// Makes an ephemeral node, unless there is one.
    ///
    /// # Errors
    /// The server says no.
    pub async fn take(&self, path: &str) -> Result<bool> {
        let reply = self.0.ask(create(path, b"", Kind::Ephemeral, Acl::Open)).await?;
        if reply.code == crate::error::Code::NODE_EXISTS { Ok(false) } else { reply.created().map(|_| true) }
    }

    /// Makes a node that stays. One that is there will do.
    ///
    /// # Errors
    /// The server says no.
    pub async fn make(&self, path: &str, data: &[u8]) -> Result<()> {
        let reply = self.0.ask(create(path, data, Kind::Persistent, Acl::Open)).await?;
        if reply.code == crate::error::Code::NODE_EXISTS { Ok(()) } else { reply.ok().map(drop) }
    }

    /// Deletes a node. Returns whether there was one.
    ///
    /// # Errors
    /// The server says no.
    pub async fn delete(&self, path: &str) -> Result<bool> {
        Ok(self.0.ask(delete(path)).await?.found()?.is_some())
    }

    /// The names of a node's children.
    ///
    /// # Errors
    /// The server says no.
    pub async fn children(&self, path: &str) -> Result<Vec<String>> {
        Ok(self.0.ask(get_children(path, false)).await?.children()?.unwrap_or_default())
    }

    /// A node's data and version, if it is there.
    ///
    /// # Errors
    /// The server says no.
    pub async fn read(&self, path: &str) -> Result<Option<(Vec<u8>, i32)>> {
        let node = self.0.ask(get_data(path, false)).await?.node()?;
        Ok(node.map(|node| (node.data.to_vec(), node.stat.version)))
    }

    /// Writes a node if its version is this one. Returns whether it was.
    ///
    /// # Errors
    /// The server says no.
    pub async fn write(&self, path: &str, data: &[u8], version: i32) -> Result<bool> {
        let reply = self.0.ask(set_data(path, data, version)).await?;
        if reply.code.is_condition() { Ok(false) } else { reply.stat().map(|_| true) }
    }

    /// Writes a node in one transaction with a check of another's version. Returns whether it was made.
    ///
    /// # Errors
    /// The server says no.
    pub async fn write_if(&self, path: &str, data: &[u8], checked: &str, version: i32) -> Result<bool> {
        let parts = [Part::Check { path: checked, version }, Part::Set { path, data, version: -1 }];
        Ok(self.0.ask(multi(&parts)).await?.applied()?.is_ok())
    }

    /// Has something agreed upon. Returns for how long the session is then known to live.
    ///
    /// # Errors
    /// No answer came.
    pub async fn beat(&self) -> Result<Duration> {
        self.0.beat().await?;
        Ok(self.0.until().saturating_since(SystemClock.now()))
    }

    /// Watches a node once; returns as soon as that stands.
    ///
    /// # Errors
    /// There is no such node, or the connection was lost.
    pub async fn watch(&self, path: &str) -> Result<BareWatch> {
        let conn = self.0.conn().await?;
        let ear = conn.listen(path);
        self.0.answer(conn.send(get_data(path, true))).await?.ok()?;
        Ok(BareWatch(ear))
    }

    /// Ends the session, and all that is on it.
    pub async fn close(&self) {
        self.0.close(true).await;
    }

    /// The session's number.
    pub fn session(&self) -> i64 {
        self.0.id()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl BareWatch {
    /// Completes once something has happened.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn something(&self) -> Result<()> {
        self.0.something().await
    }
}
