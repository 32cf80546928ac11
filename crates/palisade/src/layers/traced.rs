use std::future::Future;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Condition, Engine, Evicted, Inspection, Name, Page, Profile,
    Raise, Reading, Renewed, Result, Selector, Signals, Source, Waited, WatchStream, Withdrawn, Written,
};
use tracing::{Instrument, Span, debug, debug_span};

/// A span around every verb, with its outcome.
#[derive(Debug)]
pub(crate) struct Traced<E>(E);

impl<E: Engine> Traced<E> {
    pub(crate) fn new(inner: E) -> Self {
        Self(inner)
    }
}

/// Runs a verb in its span; costs a branch when nobody listens.
async fn told<T: std::fmt::Debug>(span: Span, verb: impl Future<Output = Result<T>>) -> Result<T> {
    async {
        let outcome = verb.await;
        match &outcome {
            Ok(done) => debug!(outcome = ?done),
            Err(error) => debug!(%error),
        }
        outcome
    }
    .instrument(span)
    .await
}

#[async_trait]
impl<E: Engine> Engine for Traced<E> {
    fn profile(&self) -> &Profile {
        self.0.profile()
    }

    fn source(&self) -> Source {
        self.0.source()
    }

    fn signals(&self) -> &Signals {
        self.0.signals()
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.0.lifeline()
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        let span = debug_span!("claim", resource = %claim.resource, claim = %claim.id, mode = %claim.mode);
        told(span, self.0.claim(claim)).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let span = debug_span!("wait", resource = %claim.resource, claim = %claim.id);
        told(span, self.0.wait(claim)).await
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let span = debug_span!("change", resource = %claim.resource, claim = %claim.id);
        told(span, self.0.change(claim, change)).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let span = debug_span!("renew", claims = claims.len());
        told(span, self.0.renew(claims)).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        let span = debug_span!("release", claims = claims.len());
        told(span, self.0.withdraw(claims)).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.0.inspect(selector, page).instrument(debug_span!("inspect")).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        told(debug_span!("evict", %resource, %claim, reason), self.0.evict(resource, claim, reason)).await
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.0.watch(selector).instrument(debug_span!("watch")).await
    }

    // Values may hold secrets: registers are traced by name and without their outcome.
    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.0.read(register, raise).instrument(debug_span!("read", %register)).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        let span = debug_span!("write", %register, bytes = value.len());
        self.0.write(register, value, condition, expires_in).instrument(span).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.0.delete(register, condition).instrument(debug_span!("delete", %register)).await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
