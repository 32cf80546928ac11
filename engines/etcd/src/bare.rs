//! The bare requests that locks are made of, over the connection that most clients have: for whoever measures
//! what the engine adds.

use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Error, ErrorKind, Result};
use prost::Message;

use crate::config::EtcdConfig;
use crate::dial::{Line, dial_by_library};
use crate::error::{failed, unexpected};
use crate::proto::{
    DeleteRequest, DeleteResponse, LeaseGrantRequest, LeaseGrantResponse, PutRequest, PutResponse,
    TxnResponse, path,
};
use crate::txn::{Txn, created_at, put};
use crate::watching::Ear;

/// One connection, without anything on top.
#[derive(Debug)]
pub struct Bare(Arc<Line>);

/// One watch of it.
#[derive(Debug)]
pub struct BareWatch(Ear);

impl Bare {
    /// Connects to the first server.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn connect(config: &EtcdConfig) -> Result<Self> {
        let server =
            config.servers.first().ok_or_else(|| Error::new(ErrorKind::Invalid, "no server was named"))?;
        dial_by_library(config, server).await.map(Self)
    }

    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.0.wire.unary(path, message).await.map_err(failed)
    }

    /// Asks for a lease of so many seconds.
    ///
    /// # Errors
    /// The server says no.
    pub async fn lease(&self, seconds: u32) -> Result<i64> {
        let request = LeaseGrantRequest { ttl: i64::from(seconds) };
        Ok(self.ask::<_, LeaseGrantResponse>(path::LEASE_GRANT, request).await?.id)
    }

    /// Makes a key on a lease, unless there is one.
    ///
    /// # Errors
    /// The server says no.
    pub async fn take(&self, key: &str, lease: i64) -> Result<bool> {
        let txn = Txn::new().when(created_at(key.into(), 0)).then(put(key.into(), "", lease));
        Ok(self.ask::<_, TxnResponse>(path::TXN, txn.request()).await?.succeeded)
    }

    /// Writes a key.
    ///
    /// # Errors
    /// The server says no.
    pub async fn put(&self, key: &str) -> Result<()> {
        let request = PutRequest { key: key.into(), ..PutRequest::default() };
        self.ask::<_, PutResponse>(path::PUT, request).await.map(drop)
    }

    /// Deletes a key. Returns whether there was one.
    ///
    /// # Errors
    /// The server says no.
    pub async fn delete(&self, key: &str) -> Result<bool> {
        let request = DeleteRequest { key: key.into() };
        Ok(self.ask::<_, DeleteResponse>(path::DELETE, request).await?.deleted > 0)
    }

    /// Refreshes a lease.
    ///
    /// # Errors
    /// There is none, or no answer came.
    pub async fn beat(&self, lease: i64) -> Result<()> {
        let answer = tokio::time::timeout(Duration::from_secs(5), self.0.beats.beat(lease)).await;
        let alive = answer.ok().flatten().is_some_and(|answer| answer.ttl > 0);
        if alive { Ok(()) } else { Err(unexpected()) }
    }

    /// Watches a key from now on; returns once that stands.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn watch(&self, key: &str) -> Result<BareWatch> {
        let mut ear = self.0.watching.key(key.into(), true);
        ear.stands().await?;
        Ok(BareWatch(ear))
    }
}

impl BareWatch {
    /// Completes once something has happened since the last time.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn something(&mut self) -> Result<()> {
        self.0.something().await
    }
}
