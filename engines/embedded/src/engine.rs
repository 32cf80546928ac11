use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, Consistency, Drift, Durability, Engine,
    Error, Evicted, Fairness, FamilyScope, Inspection, Liveness, Modes, Name, Page, Profile, Raise, Reach,
    Reading, Renewed, Result, Selector, Signals, Source, SystemClock, TokenPromise, Trips, Waited, Wakeup,
    WatchStream, Withdrawn, Written,
};
use tokio::task::AbortHandle;

use crate::error::ENGINE;
use crate::registers::Registers;
use crate::shared::{Shared, Urgency};
use crate::{wait, watch};

/// What the embedded engine promises.
pub fn profile() -> Profile {
    Profile {
        engine: ENGINE,
        reach: Reach::Host,
        consistency: Consistency::Linearizable,
        fairness: Fairness::Fifo,
        tokens: TokenPromise { source: "a counter file of the folder", assumes: None },
        wakeup: Wakeup::Push,
        liveness: Liveness::Kernel,
        durability: Durability::Crash,
        modes: Modes { shared: true, slots: true },
        families: FamilyScope::OneQueue,
        registers: true,
        register_expiry: true,
        evict: true,
        // All processes read the same clock; the margin covers the time to act on it.
        drift: Drift { fixed: Duration::from_millis(1), per_mille: 5 },
        batch: 16_384,
        trips: Trips { claim: 1, withdraw: 1, renew: 1 },
    }
}

/// One session in a folder that processes of one host share.
///
/// Dropping it ends the session as the death of the process would: what it claimed passes on at
/// once. [`Engine::close`] does the same in order.
#[derive(Debug)]
pub struct EmbeddedEngine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) registers: Arc<Registers>,
    pub(crate) profile: Profile,
    pub(crate) source: Source,
    /// Only `None` while dropping.
    pub(crate) lifeline: Option<Arc<File>>,
    pub(crate) receiver: AbortHandle,
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.shared.shut();
        self.receiver.abort();
        self.lifeline = None;
        // Claims may be left: then the files stay too, so that the next one who opens the folder
        // finds them. Not over if a child still has the descriptor: then the claims stay until it
        // ends, or their TTL does.
        if self.shared.is_spare() && self.shared.sessions.is_dead(self.shared.session) {
            self.shared.sessions.remove(self.shared.session);
        }
    }
}

/// More than this in one call would hold up the caller's thread.
const LIGHT_BATCH: usize = 64;

fn weight(claims: &[Arc<Claim>]) -> Urgency {
    if claims.len() > LIGHT_BATCH { Urgency::Heavy } else { Urgency::Normal }
}

fn about(name: &Name) -> impl Fn(Error) -> Error {
    move |error| error.on_engine(ENGINE).about(name)
}

#[async_trait]
impl Engine for EmbeddedEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn source(&self) -> Source {
        self.source.clone()
    }

    fn signals(&self) -> &Signals {
        &self.shared.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_deref().map(AsFd::as_fd)
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.shared.check_open()?;
        self.shared.check_session()?;
        let (asked, asks) = (SystemClock.now().as_nanos(), Arc::clone(claim));
        self.shared
            .decide(Urgency::Abandonable, move |ledger| ledger.claim(&asks, asked))
            .await
            .map_err(about(&claim.resource))
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        wait::wait(&self.shared, claim).await.map_err(about(&claim.resource))
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let (asks, change) = (Arc::clone(claim), change.clone());
        self.shared
            .decide(Urgency::Normal, move |ledger| ledger.change(&asks, &change))
            .await
            .map_err(about(&claim.resource))
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let (asked, all) = (SystemClock.now().as_nanos(), claims.to_vec());
        self.shared.decide(weight(claims), move |ledger| ledger.renew(&all, asked)).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        let all = claims.to_vec();
        self.shared.decide(weight(claims), move |ledger| ledger.withdraw_all(&all)).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.shared.check_open()?;
        if !selector.wants_resources() {
            return Ok(Inspection::default());
        }
        Ok(watch::inspect(&self.shared, selector, page).await?.inspection)
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let (name, reason) = (resource.clone(), reason.to_owned());
        self.shared
            .decide(Urgency::Normal, move |ledger| ledger.evict(&name, claim, &reason))
            .await
            .map_err(about(resource))
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.shared.check_open()?;
        watch::watch(&self.shared, &self.registers, selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        self.shared.check_open()?;
        match raise {
            None => self.registers.read(register).map(Reading::Fresh),
            Some(raise) => self.registers.raise(register, raise).await,
        }
        .map_err(about(register))
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.shared.check_open()?;
        self.registers.put(register, Some(value), condition, expires_in).await.map_err(about(register))
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.shared.check_open()?;
        self.registers.put(register, None, condition, None).await.map_err(about(register))
    }

    async fn close(&self) {
        if !self.shared.shut() {
            return;
        }
        self.receiver.abort();
        let (session, sessions) = (self.shared.session, &self.shared.sessions);
        if !self.shared.is_spare() {
            // What was asked for before is still done first, so nothing is left behind it.
            let ended = self.shared.decide_later(Urgency::Heavy, move |ledger| ledger.reap(&[session])).await;
            if let Err(problem) = ended {
                tracing::warn!(%problem, "could not end the session in order; its claims pass on as after a crash");
                if let Some(lifeline) = &self.lifeline {
                    sessions.abandon(session, lifeline);
                }
                return;
            }
        }
        sessions.remove(session);
    }
}
