use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade::Client;
use palisade_core::{
    Claim, ClaimId, Claimed, Clock, Condition, Engine, Entry, Grant, Layer, Name, Raise, Reading, Renewed,
    Result, SystemClock, Version, Waited, Withdrawn, Written,
};
use parking_lot::Mutex;

use super::{Bug, naive};
use crate::verify::worker::Spec;

/// A client of the same engine with `bug` in between.
pub(super) fn over(bug: Bug, spec: &Spec, client: Client) -> anyhow::Result<Client> {
    let ttl = Duration::from_millis(spec.ttl_ms);
    let inner = Arc::clone(client.engine());
    let builder = Client::builder().label("palisade verify").ttl(ttl).call_timeout(ttl);
    let engine: Arc<dyn Engine> = match bug {
        Bug::NaiveTtlLock => Arc::new(naive::Naive::new(inner, client)),
        bug => Arc::new(Planted {
            bug,
            inner,
            _client: client,
            held: Mutex::default(),
            granted: Mutex::default(),
            copies: Mutex::default(),
            count: AtomicU64::new(spec.seed),
        }),
    };
    Ok(builder.over(engine)?)
}

/// An engine with one bug.
#[derive(Debug)]
pub(super) struct Planted {
    pub(super) bug: Bug,
    pub(super) inner: Arc<dyn Engine>,
    /// Keeps the connection.
    _client: Client,
    /// What this process holds, by resource.
    pub(super) held: Mutex<HashMap<Name, (ClaimId, Grant)>>,
    /// Claims that were granted and told so.
    pub(super) granted: Mutex<HashSet<ClaimId>>,
    /// What a lagging copy of a register shows.
    copies: Mutex<HashMap<Name, Entry>>,
    count: AtomicU64,
}

impl Planted {
    /// One in `of`.
    pub(super) fn now_and_then(&self, of: u64) -> bool {
        self.next().is_multiple_of(of)
    }

    /// A number that rises in this process.
    pub(super) fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    async fn entry(&self, register: &Name) -> Result<Entry> {
        match self.inner.read(register, None).await? {
            Reading::Fresh(entry) => Ok(entry),
            Reading::Refused(refusal) => Ok(refusal.current),
        }
    }
}

#[async_trait]
impl Layer for Planted {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.bent_claim(claim).await
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        self.bent_wait(claim).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        if self.bug == Bug::RenewedOnPaper {
            let until = |claim: &Arc<Claim>| SystemClock.now() + claim.ttl.as_duration();
            return Ok(claims.iter().map(|claim| Renewed::Valid { until: until(claim) }).collect());
        }
        let answers = self.inner.renew(claims).await?;
        let bent = answers.into_iter().map(|answer| match (self.bug, answer) {
            // Whatever the engine says, the holder goes on believing.
            (Bug::DeadlineIgnored | Bug::TwoLeaders, _) => {
                Renewed::Valid { until: palisade_core::BootInstant::FAR_FUTURE }
            }
            (_, answer) => answer,
        });
        Ok(bent.collect())
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.bent_withdraw(claims).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        let raise = raise.filter(|_| !matches!(self.bug, Bug::FenceIgnored | Bug::FenceNotRaisedByReading));
        let reading = self.inner.read(register, raise).await?;
        match reading {
            Reading::Fresh(entry) if self.bug == Bug::StaleRead => {
                let copy = self.copies.lock().insert(register.clone(), entry.clone());
                Ok(Reading::Fresh(copy.filter(|_| self.now_and_then(10)).unwrap_or(entry)))
            }
            other => Ok(other),
        }
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        let mut condition = condition.clone();
        match (self.bug, condition.version) {
            (Bug::FenceIgnored, _) => condition.token = None,
            (Bug::TornWrite, Some(expected)) if self.entry(register).await?.version == expected => {
                tokio::task::yield_now().await;
                condition.version = None;
            }
            (Bug::AcknowledgedUnwritten, Some(expected)) if self.now_and_then(50) => {
                return Ok(Written::Done(Version::new(expected.get() + 1)));
            }
            _ => {}
        }
        self.inner.write(register, value, &condition, expires_in).await
    }
}
