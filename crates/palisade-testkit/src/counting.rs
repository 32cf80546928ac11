use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use palisade_core::{Claim, Claimed, Engine, Layer, Renewed, Result, Waited, Withdrawn};

/// How often a client asked for each verb about claims.
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
}

fn bump(count: &AtomicU64, by: usize) {
    count.fetch_add(by as u64, Ordering::Relaxed);
}

#[async_trait]
impl Layer for Counting {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        bump(&self.calls.claim, 1);
        self.inner.claim(claim).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        bump(&self.calls.wait, 1);
        self.inner.wait(claim).await
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
}
