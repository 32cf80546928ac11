use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Condition, Engine, Evicted, Inspection, Name, Page, Profile,
    Raise, Reading, Renewed, Result, Selector, Signals, Source, Waited, WatchStream, Withdrawn, Written,
};

/// How often each verb was called.
#[derive(Debug, Default)]
pub struct Calls {
    /// [`Engine::claim`].
    pub claim: AtomicU64,
    /// [`Engine::wait`].
    pub wait: AtomicU64,
    /// [`Engine::renew`].
    pub renew: AtomicU64,
    /// How many claims all renewals carried.
    pub renewed: AtomicU64,
    /// [`Engine::withdraw`].
    pub withdraw: AtomicU64,
    /// All other verbs.
    pub other: AtomicU64,
}

/// An engine that counts what its client asks.
#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn Engine>,
    calls: Arc<Calls>,
}

impl Counting {
    /// Counts the calls to `inner`.
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        Self { inner, calls: Arc::default() }
    }

    /// The counts so far.
    pub fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }

    fn other(&self) -> &dyn Engine {
        bump(&self.calls.other, 1);
        &*self.inner
    }
}

fn bump(count: &AtomicU64, by: usize) {
    count.fetch_add(by as u64, Ordering::Relaxed);
}

#[async_trait]
impl Engine for Counting {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn source(&self) -> Source {
        self.inner.source()
    }

    fn signals(&self) -> &Signals {
        self.inner.signals()
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.inner.lifeline()
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        bump(&self.calls.claim, 1);
        self.inner.claim(claim).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        bump(&self.calls.wait, 1);
        self.inner.wait(claim).await
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.other().change(claim, change).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        bump(&self.calls.renew, 1);
        bump(&self.calls.renewed, claims.len());
        self.inner.renew(claims).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        bump(&self.calls.withdraw, 1);
        self.inner.withdraw(claims).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.other().inspect(selector, page).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.other().evict(resource, claim, reason).await
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.other().watch(selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.other().read(register, raise).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.other().write(register, value, condition, expires_in).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.other().delete(register, condition).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
