use std::fmt::Debug;
use std::future::Future;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, Engine, Error, ErrorKind,
    Evicted, Inspection, Name, Page, Profile, Raise, Reading, Renewed, Result, Selector, Signals, Source,
    Waited, WatchStream, Withdrawn, Written,
};
use tracing::{Instrument, Span, debug, debug_span};

/// What every call to every engine gets: a span with its outcome, a time limit (but for `wait`),
/// and the engine's name in its errors.
///
/// No client library bounds time by itself while its server is down.
#[derive(Debug)]
pub(crate) struct Supervised {
    inner: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    limit: Duration,
}

impl Supervised {
    pub(crate) fn new(inner: Arc<dyn Engine>, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self { inner, clock, limit }
    }

    /// As [`Supervised::quietly`], and the outcome is traced.
    async fn told<T: Debug>(&self, span: Span, verb: impl Future<Output = Result<T>>) -> Result<T> {
        let traced = async {
            let outcome = verb.await;
            match &outcome {
                Ok(done) => debug!(outcome = ?done),
                Err(error) => debug!(%error),
            }
            outcome
        };
        self.quietly(span, traced).await
    }

    /// Runs a verb in its span and within the limit. For verbs whose outcome may hold secrets.
    ///
    /// The timer is armed only when the verb does not complete at once, as most embedded ones do.
    async fn quietly<T>(&self, span: Span, verb: impl Future<Output = Result<T>>) -> Result<T> {
        self.within(self.limit, span, verb).await
    }

    /// As [`quietly`](Self::quietly), within another limit.
    async fn within<T>(
        &self,
        limit: Duration,
        span: Span,
        verb: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut verb = std::pin::pin!(verb.instrument(span));
        if self.inner.bounds_calls() {
            return verb.await.map_err(|error| error.on_engine(self.inner.profile().engine));
        }
        let mut timer = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(done) = verb.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            let timer = timer.get_or_insert_with(|| self.clock.sleep_until(self.clock.now() + limit));
            timer.as_mut().poll(context).map(|()| Err(timed_out(limit)))
        })
        .await
        .map_err(|error| error.on_engine(self.inner.profile().engine))
    }
}

fn timed_out(limit: Duration) -> Error {
    let message = format!("no answer within {limit:?}; raise call-timeout if the engine is just slow");
    Error::new(ErrorKind::Timeout, message).with_unknown_effect()
}

#[async_trait]
impl Engine for Supervised {
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

    fn bounds_calls(&self) -> bool {
        self.inner.bounds_calls()
    }

    fn forgot_at(&self) -> Option<BootInstant> {
        self.inner.forgot_at()
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        let span = debug_span!("claim", resource = %claim.resource, claim = %claim.id, mode = %claim.mode);
        self.told(span, self.inner.claim(claim)).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let span = debug_span!("wait", resource = %claim.resource, claim = %claim.id);
        self.inner.wait(claim).instrument(span).await
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let span = debug_span!("change", resource = %claim.resource, claim = %claim.id);
        self.told(span, self.inner.change(claim, change)).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.quietly(debug_span!("renew", claims = claims.len()), self.inner.renew(claims)).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        // Many engines end them one by one: ten thousand may take longer than a call should.
        let limit = self.limit + Duration::from_secs(claims.len() as u64 / 1000);
        self.within(limit, debug_span!("release", claims = claims.len()), self.inner.withdraw(claims)).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.quietly(debug_span!("inspect"), self.inner.inspect(selector, page)).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let span = debug_span!("evict", %resource, %claim, reason);
        self.told(span, self.inner.evict(resource, claim, reason)).await
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        let changes = self.quietly(debug_span!("watch"), self.inner.watch(selector)).await?;
        let engine = self.inner.profile().engine;
        Ok(changes.map(move |change| change.map_err(|error| error.on_engine(engine))).boxed())
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.quietly(debug_span!("read", %register), self.inner.read(register, raise)).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        let span = debug_span!("write", %register, bytes = value.len());
        self.quietly(span, self.inner.write(register, value, condition, expires_in)).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.quietly(debug_span!("delete", %register), self.inner.delete(register, condition)).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
