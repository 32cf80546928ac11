use std::future::Future;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, Engine, Error, ErrorKind, Evicted,
    Inspection, Name, Page, Profile, Raise, Reading, Renewed, Result, Selector, Signals, Source, Waited,
    WatchStream, Withdrawn, Written,
};

/// Gives every verb but `wait` and `watch` a time limit: no client library bounds time by itself
/// while its server is down.
#[derive(Debug)]
pub(crate) struct Bounded {
    inner: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    limit: Duration,
}

impl Bounded {
    pub(crate) fn new(inner: Arc<dyn Engine>, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self { inner, clock, limit }
    }

    /// Arms the timer only when the verb does not complete at once, as most embedded ones do.
    async fn within<T>(&self, verb: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        let mut timer = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            let timer = timer.get_or_insert_with(|| self.clock.sleep_until(self.clock.now() + self.limit));
            timer.as_mut().poll(context).map(|()| Err(self.timed_out(verb)))
        })
        .await
        .map_err(|error| error.on_engine(self.inner.profile().engine))
    }

    fn timed_out(&self, verb: &str) -> Error {
        let message = format!(
            "{verb} got no answer within {:?}; raise call-timeout if the engine is just slow",
            self.limit
        );
        Error::new(ErrorKind::Timeout, message).with_unknown_effect()
    }
}

#[async_trait]
impl Engine for Bounded {
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
        self.within("claim", self.inner.claim(claim)).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        self.inner.wait(claim).await
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.within("change", self.inner.change(claim, change)).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.within("renew", self.inner.renew(claims)).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.within("withdraw", self.inner.withdraw(claims)).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.within("inspect", self.inner.inspect(selector, page)).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.within("evict", self.inner.evict(resource, claim, reason)).await
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.within("watch", self.inner.watch(selector)).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.within("read", self.inner.read(register, raise)).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.within("write", self.inner.write(register, value, condition, expires_in)).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.within("delete", self.inner.delete(register, condition)).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
