use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use palisade_core::memory::MemoryEngine;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, Engine, Error, Evicted, Inspection, Layer,
    Mode, Name, Page, Raise, Reading, Renewed, Result, Selector, Waited, WatchStream, Withdrawn, Written,
};

use super::forge::without_slot;
use super::{Fault, Shared};

/// One connection to a memory engine with a fault.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) inner: MemoryEngine,
    pub(super) namespace: String,
    pub(super) fault: Fault,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Broken {
    async fn bend_queued(&self, claim: &Arc<Claim>, claimed: Claimed) -> Result<Claimed> {
        let wrongly_in = match (self.fault, &claimed) {
            (_, Claimed::Granted(_)) => false,
            (Fault::DoubleGrant, _) => true,
            (Fault::RareDoubleGrant, _) => self.now_and_then(8),
            (Fault::OvertakesQueue, _) => claim.mode == Mode::Shared && self.only_readers(claim).await?,
            _ => false,
        };
        Ok(if wrongly_in { Claimed::Granted(self.forged(claim)) } else { claimed })
    }

    /// As if the resource had been deleted when it was last given back.
    fn forget_token(&self, claim: &Claim, claimed: Claimed) -> Claimed {
        match claimed {
            Claimed::Granted(mut grant)
                if self.fault == Fault::TokenForgotten && claim.token_floor.is_none() =>
            {
                grant.token = palisade_core::Token::new(1).expect("in range");
                Claimed::Granted(grant)
            }
            other => other,
        }
    }

    /// Frees whoever holds the resource, as a release without a check does.
    async fn release_anyone(&self, claim: &Claim) -> Result<()> {
        let selector = Selector::resource(claim.resource.clone());
        let seen = self.inner.inspect(&selector, &Page::default()).await?;
        let holders = seen.resources.iter().flat_map(|view| &view.holders);
        let holders: Vec<_> = holders.filter_map(|holder| self.known(holder.claim)).collect();
        self.inner.withdraw(&holders).await.map(drop)
    }

    async fn revive(&self, claims: &[Arc<Claim>], answers: &mut [Renewed]) -> Result<()> {
        for (claim, answer) in claims.iter().zip(answers) {
            if matches!(answer, Renewed::Gone(_)) {
                self.inner.claim(claim).await?;
                *answer = Renewed::Valid { until: self.clock.now() + claim.ttl.as_duration() };
            }
        }
        Ok(())
    }

    async fn requeue(&self, claims: &[Arc<Claim>]) -> Result<()> {
        for claim in claims {
            if let Claimed::Queued(_) = self.inner.claim(claim).await? {
                self.inner.withdraw(std::slice::from_ref(claim)).await?;
                self.inner.claim(claim).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Layer for Broken {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        let bent = self.bend_claim(claim);
        let claimed = self.inner.claim(&bent).await?;
        if self.fault == Fault::BusyLeavesClaim && !claim.will_wait && matches!(claimed, Claimed::Queued(_)) {
            let probe = Claim::new(bent.resource.clone(), claim.mode, claim.ttl, Arc::clone(&claim.owner));
            return self.inner.claim(&Arc::new(probe.no_wait())).await;
        }
        let claimed = self.bend_queued(&bent, claimed).await?;
        Ok(self.forget_token(claim, self.bend_claimed(claim, claimed)))
    }

    async fn claim_each(&self, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        if let (Fault::TogetherLeaks, Some(last)) = (self.fault, claims.last()) {
            let unknown = Claim::new(last.resource.clone(), last.mode, last.ttl, Arc::clone(&last.owner));
            let _ = self.inner.claim(&Arc::new(unknown)).await;
            tokio::task::yield_now().await;
        }
        let mut answers = join_all(claims.iter().map(|claim| Layer::claim(self, claim))).await;
        match self.fault {
            Fault::TogetherOutOfOrder => answers.reverse(),
            Fault::TogetherFailsAsOne => {
                if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
                    let (kind, message) = (error.kind(), error.to_string());
                    answers = claims.iter().map(|_| Err(Error::new(kind, message.clone()))).collect();
                }
            }
            _ => {}
        }
        answers
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let bent = self.bend_claim(claim);
        let mut wait = Box::pin(self.inner.wait(&bent));
        if let std::task::Poll::Ready(waited) = futures::poll!(wait.as_mut()) {
            return Ok(self.bend_waited(claim, waited?));
        }
        match self.fault {
            Fault::LostWakeup if self.now_and_then(8) => self.for_ever().await,
            Fault::WakeupBelieved => {
                let mut events = self.inner.watch(&Selector::resource(bent.resource.clone())).await?;
                events.next().await;
                events.next().await;
                return Ok(Waited::Granted(self.forged(claim)));
            }
            _ => {}
        }
        Ok(self.bend_waited(claim, wait.await?))
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let bent = self.bend_claim(claim);
        match (self.fault, change) {
            (Fault::DowngradeGap, Change::Mode(Mode::Shared)) => {
                let mut reader = Claim::clone(&bent);
                reader.mode = Mode::Shared;
                self.inner.withdraw(&[bent]).await?;
                self.inner.claim(&Arc::new(reader)).await?;
                Ok(Changed::Done)
            }
            (Fault::UpgradeAllowed, Change::Mode(Mode::Exclusive)) => Ok(Changed::Done),
            _ => self.inner.change(&bent, change).await,
        }
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let bent: Vec<_> = claims.iter().map(|claim| self.bend_claim(claim)).collect();
        let mut answers = self.inner.renew(&bent).await?;
        match self.fault {
            Fault::RevivesExpired => self.revive(&bent, &mut answers).await?,
            Fault::RenewalLosesPlace => self.requeue(&bent).await?,
            Fault::RenewalsOutOfOrder => answers.reverse(),
            _ => {}
        }
        Ok(claims.iter().zip(answers).map(|(claim, answer)| self.bend_renewed(claim, answer)).collect())
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        let mut answers = Vec::new();
        for claim in claims {
            let bent = self.bend_claim(claim);
            if self.fault == Fault::WaiterLeaked
                && matches!(self.inner.claim(&bent).await?, Claimed::Queued(_))
            {
                answers.push(Withdrawn::LeftQueue);
                continue;
            }
            let answer = self.inner.withdraw(std::slice::from_ref(&bent)).await?[0];
            if self.fault == Fault::ForeignRelease && answer == Withdrawn::AlreadyGone {
                self.release_anyone(&bent).await?;
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        let mut bent = selector.clone();
        if let palisade_core::Matching::Exact(name) = &mut bent.matching {
            *name = self.bend_name(name);
        }
        let mut seen = self.inner.inspect(&bent, page).await?;
        match self.fault {
            Fault::WaitersHidden => seen.resources.iter_mut().for_each(|view| view.waiters.clear()),
            Fault::PageRepeats => {
                let before_last = seen.resources.iter().rev().nth(1).map(|view| view.resource.clone());
                seen.next = seen.next.map(|next| before_last.unwrap_or(next));
            }
            _ => {}
        }
        Ok(seen)
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let resource = self.bend_name(resource);
        match (self.fault, self.known(claim)) {
            (Fault::EvictUntold, Some(known)) if known.resource == resource => {
                let gone = self.inner.withdraw(&[known]).await?[0] == Withdrawn::AlreadyGone;
                Ok(if gone { Evicted::NotFound } else { Evicted::Done })
            }
            (Fault::EvictsSession, Some(known)) => {
                let mine: Vec<_> = self.shared.claims.lock().values().cloned().collect();
                for other in mine.iter().filter(|other| other.owner.client == known.owner.client) {
                    self.inner.evict(&other.resource, other.id, reason).await?;
                }
                Ok(Evicted::Done)
            }
            _ => self.inner.evict(&resource, claim, reason).await,
        }
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        let events = self.inner.watch(selector).await?;
        if self.fault != Fault::WatchMisses {
            return Ok(events);
        }
        let every_second =
            events.enumerate().filter_map(|(at, event)| async move { (at % 2 == 0).then_some(event) });
        Ok(every_second.boxed())
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        let bent = self.bend_register(register);
        let raise = raise.cloned().map(|raise| match self.fault {
            Fault::SlotsShareFence => Raise { token: without_slot(raise.token), ..raise },
            _ => raise,
        });
        let raise = raise.filter(|raise| self.fault != Fault::OpeningDoesNotFence || raise.rebase);
        let reading = self.inner.read(&bent, raise.as_ref()).await?;
        match reading {
            Reading::Fresh(entry) if self.fault == Fault::StaleRead => {
                let mut copies = self.shared.copies.lock();
                let copy = copies
                    .entry((self.namespace.clone(), bent))
                    .or_insert_with(|| [entry.clone(), entry.clone()]);
                if copy[1] != entry {
                    copy.swap(0, 1);
                    copy[1] = entry;
                }
                Ok(Reading::Fresh(copy[0].clone()))
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
        let (bent, mut condition) = (self.bend_register(register), self.bend_condition(condition));
        let expires_in = expires_in.filter(|_| self.fault != Fault::RegisterExpiryLost);
        if let (Fault::TornWrite, Some(version)) = (self.fault, condition.version) {
            let current = self.inner.read(&bent, None).await?;
            if matches!(&current, Reading::Fresh(entry) if entry.version == version) {
                condition.version = None;
                tokio::task::yield_now().await;
            }
        }
        self.inner.write(&bent, value, &condition, expires_in).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        let bent = self.bend_register(register);
        let written = self.inner.delete(&bent, &self.bend_condition(condition)).await?;
        if self.fault == Fault::VersionComesBack && matches!(written, Written::Done(_)) {
            *self.shared.lives.lock().entry(register.clone()).or_default() += 1;
        }
        Ok(written)
    }

    async fn close(&self) {
        if self.fault != Fault::ClosedStillServes {
            self.inner.close().await;
        }
    }
}
