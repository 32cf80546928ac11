use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;

use crate::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Condition, Engine, Evicted, Inspection, Name,
    Page, Profile, Raise, Reading, Renewed, Result, Selector, Signals, Source, Waited, WatchStream,
    Withdrawn, Written,
};

/// An engine that is another engine with a few verbs changed: to count calls, to lose replies, to
/// break a promise on purpose. Overrides what it changes, inherits the rest.
#[async_trait]
#[allow(missing_docs, reason = "each method is the one of `Engine` with the same name")]
pub trait Layer: Send + Sync + fmt::Debug + 'static {
    /// The engine underneath.
    fn inner(&self) -> &dyn Engine;

    fn profile(&self) -> &Profile {
        self.inner().profile()
    }

    fn source(&self) -> Source {
        self.inner().source()
    }

    fn signals(&self) -> &Signals {
        self.inner().signals()
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.inner().lifeline()
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        self.inner().forgot_at()
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.inner().claim(claim).await
    }

    // What a layer does to a claim, it does to those that are asked for together.
    async fn claim_each(&self, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        join_all(claims.iter().map(|claim| Layer::claim(self, claim))).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        self.inner().wait(claim).await
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.inner().change(claim, change).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.inner().renew(claims).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.inner().withdraw(claims).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.inner().inspect(selector, page).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.inner().evict(resource, claim, reason).await
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.inner().watch(selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.inner().read(register, raise).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.inner().write(register, value, condition, expires_in).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.inner().delete(register, condition).await
    }

    async fn close(&self) {
        self.inner().close().await;
    }
}

#[async_trait]
impl<L: Layer> Engine for L {
    fn profile(&self) -> &Profile {
        Layer::profile(self)
    }

    fn source(&self) -> Source {
        Layer::source(self)
    }

    fn signals(&self) -> &Signals {
        Layer::signals(self)
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        Layer::lifeline(self)
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        Layer::forgot_at(self)
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        Layer::claim(self, claim).await
    }

    async fn claim_each(&self, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        Layer::claim_each(self, claims).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        Layer::wait(self, claim).await
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        Layer::change(self, claim, change).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        Layer::renew(self, claims).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        Layer::withdraw(self, claims).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        Layer::inspect(self, selector, page).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        Layer::evict(self, resource, claim, reason).await
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        Layer::watch(self, selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        Layer::read(self, register, raise).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        Layer::write(self, register, value, condition, expires_in).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        Layer::delete(self, register, condition).await
    }

    async fn close(&self) {
        Layer::close(self).await;
    }
}
