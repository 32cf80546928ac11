use std::sync::Arc;

use futures::StreamExt;
use palisade_core::{
    BootInstant, Claim, Claimed, Clock, Grant, Mode, Page, Place, Result, Selector, SystemClock, Token,
    Waited, Withdrawn,
};

use super::Bug;
use super::layer::Planted;

impl Planted {
    pub(super) async fn bent_claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        if self.bug == Bug::OwnershipShared
            && let Some((_, grant)) = self.held.lock().get(&claim.resource)
        {
            return Ok(Claimed::Granted(grant.clone()));
        }
        let mut asked = Arc::clone(claim);
        if let (Bug::PermitTooMany, Mode::Slot { of }) = (self.bug, claim.mode) {
            Arc::make_mut(&mut asked).mode = Mode::Slot { of: of + 1 };
        }
        let looked_free = self.bug == Bug::CheckThenAct && self.looks_free(claim).await?;
        let claimed = match self.inner.claim(&asked).await? {
            Claimed::Granted(grant) => Claimed::Granted(self.bent_grant(grant)),
            Claimed::Queued(_) | Claimed::Busy(_) if looked_free => {
                Claimed::Granted(self.forged(claim).await?)
            }
            Claimed::Queued(place) => self.let_in_anyway(claim, place).await?,
            busy @ Claimed::Busy(_) => busy,
        };
        if let Claimed::Granted(grant) = &claimed {
            self.note(claim, grant);
        }
        Ok(claimed)
    }

    async fn let_in_anyway(&self, claim: &Arc<Claim>, place: Place) -> Result<Claimed> {
        let reader = self.bug == Bug::ReaderBesideWriter && claim.mode == Mode::Shared;
        Ok(if reader { Claimed::Granted(self.forged(claim).await?) } else { Claimed::Queued(place) })
    }

    pub(super) async fn bent_wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        if self.bug == Bug::WakeUpBelieved {
            let mut changes = self.inner.watch(&Selector::resource(claim.resource.clone())).await?;
            changes.next().await;
            changes.next().await;
            return Ok(Waited::Granted(self.forged(claim).await?));
        }
        if self.bug == Bug::WakeUpLost && self.now_and_then(50) {
            return futures::future::pending().await;
        }
        let waited = match self.inner.wait(claim).await? {
            Waited::Granted(grant) => Waited::Granted(self.bent_grant(grant)),
            Waited::Gone(_) if self.bug == Bug::ExpiredWaiterGranted => {
                Waited::Granted(self.forged(claim).await?)
            }
            gone @ Waited::Gone(_) => gone,
        };
        if let Waited::Granted(grant) = &waited {
            self.note(claim, grant);
        }
        Ok(waited)
    }

    pub(super) async fn bent_withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        for claim in claims {
            let mut held = self.held.lock();
            if held.get(&claim.resource).is_some_and(|(holder, _)| *holder == claim.id) {
                held.remove(&claim.resource);
            }
        }
        let kept = |claim: &&Arc<Claim>| match self.bug {
            Bug::RenewedAfterRelease => self.now_and_then(200),
            Bug::CancelLeaks => !self.granted.lock().contains(&claim.id),
            _ => false,
        };
        if let Some(claim) = claims.iter().find(kept) {
            self.renew_for_ever(claim);
            return Ok(claims.iter().map(|_| Withdrawn::Released).collect());
        }
        let answers = self.inner.withdraw(claims).await?;
        for (claim, answer) in claims.iter().zip(&answers) {
            if self.bug == Bug::ReleasesAnyone && *answer == Withdrawn::AlreadyGone {
                self.free_whoever_holds(claim).await?;
            }
        }
        Ok(answers)
    }

    fn note(&self, claim: &Claim, grant: &Grant) {
        self.held.lock().insert(claim.resource.clone(), (claim.id, grant.clone()));
        self.granted.lock().insert(claim.id);
    }

    fn bent_grant(&self, mut grant: Grant) -> Grant {
        match self.bug {
            Bug::DeadlineIgnored | Bug::TwoLeaders => grant.valid_until = BootInstant::FAR_FUTURE,
            Bug::TokenPerProcess => {
                grant.token = Token::new(self.next() % 1_000_000 + 1).unwrap_or(grant.token);
            }
            _ => {}
        }
        grant
    }

    /// A grant that the engine knows nothing of, with a token that looks right.
    async fn forged(&self, claim: &Claim) -> Result<Grant> {
        let seen = self.seen(claim).await?;
        let greatest = seen.iter().filter_map(|holder| holder.token).max();
        Ok(Grant {
            token: greatest
                .and_then(|token| Token::new(token.get() + 1))
                .unwrap_or(Token::new(1).expect("in range")),
            slot: None,
            valid_until: SystemClock.now() + claim.ttl.as_duration(),
        })
    }

    async fn seen(&self, claim: &Claim) -> Result<Vec<palisade_core::ClaimView>> {
        let selector = Selector::resource(claim.resource.clone());
        let seen = self.inner.inspect(&selector, &Page::default()).await?;
        Ok(seen.resources.into_iter().flat_map(|view| view.holders).collect())
    }

    async fn looks_free(&self, claim: &Claim) -> Result<bool> {
        let free = self.seen(claim).await?.is_empty();
        // What a program does between its look and its act.
        tokio::task::yield_now().await;
        Ok(free)
    }

    async fn free_whoever_holds(&self, claim: &Claim) -> Result<()> {
        for holder in self.seen(claim).await? {
            self.inner.evict(&claim.resource, holder.claim, "a bare DEL").await?;
        }
        Ok(())
    }

    fn renew_for_ever(&self, claim: &Arc<Claim>) {
        let (engine, claim) = (Arc::clone(&self.inner), Arc::clone(claim));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(claim.ttl.as_duration() / 3).await;
                let _ = engine.renew(std::slice::from_ref(&claim)).await;
            }
        });
    }
}
