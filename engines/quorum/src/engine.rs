use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{FutureExt, OptionFuture, join_all};
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Condition, ConnectionState, Engine, Error, ErrorKind, Evicted,
    GoneReason, Grant, Inspection, Mode, Name, Page, Place, Profile, Raise, Reading, Renewed, Result,
    Selector, Signal, Signals, Source, Waited, WatchStream, Withdrawn, Written,
};

use crate::ballot::{Ballot, Phase};
use crate::core::Core;
use crate::drive::Driver;
use crate::error::{Failure, closed, error};
use crate::together::ask_gathered;

/// Redlock: one connection to each of N nodes, any engines, of which a majority decides.
///
/// What it promises and what not is in [`profile`](crate::profile).
#[derive(Debug)]
pub struct QuorumEngine {
    pub(crate) core: Arc<Core>,
}

impl Drop for QuorumEngine {
    fn drop(&mut self) {
        self.core.shut();
    }
}

/// Nobody was there to send it.
fn unsent() -> Error {
    error(ErrorKind::Unavailable, "too many claims wait on this connection")
}

fn no_registers(register: &Name) -> Error {
    let message =
        "a quorum keeps no registers; use those of an engine that does, fenced with the quorum's tokens";
    error(ErrorKind::Unsupported, message).about(register)
}

impl QuorumEngine {
    fn check(&self, claim: &Claim) -> Result<()> {
        let (longest, ttl) = (self.core.longest_ttl, claim.ttl.as_duration());
        let margin = self.core.profile.drift.margin(ttl);
        let refusal = match claim.mode {
            Mode::Shared => Some((ErrorKind::Unsupported, "a quorum grants no shared claims".to_owned())),
            Mode::Slot { .. } => Some((ErrorKind::Unsupported, "a quorum grants no slots".to_owned())),
            Mode::Exclusive if margin > ttl / 2 => Some((
                ErrorKind::Invalid,
                format!(
                    "drift and drift-factor take {margin:?} of a TTL of {ttl:?}, which leaves too little to renew it in; use a longer TTL, or a drift far below it"
                ),
            )),
            Mode::Exclusive if ttl > longest => Some((
                ErrorKind::Invalid,
                format!(
                    "the TTL is {ttl:?}, and longest-ttl says that none is above {longest:?}: a node that forgot its grants votes again after that; raise it on every client, or use a shorter TTL"
                ),
            )),
            Mode::Exclusive => None,
        };
        refusal.map_or(Ok(()), |(kind, message)| Err(error(kind, message).about(&claim.resource)))
    }

    /// Drives a ballot until there is something to say; what is left to do goes on in the background.
    async fn drive(&self, ballot: &Arc<Ballot>) -> Result<()> {
        let core = &self.core;
        let mut told = ballot.phase.subscribe();
        let mut closing = core.closed.subscribe();
        let driving = Arc::clone(&ballot.driving).try_lock_owned().ok();
        if driving.is_some() && !matches!(ballot.phase(), Phase::Granted(_) | Phase::Queued(_)) {
            ballot.phase.send_replace(Phase::Asking);
            let mut tally = ballot.tally.lock();
            tally.until = core.clock.now() + ballot.claim.ttl.as_duration();
            tally.granted = None;
        }
        let alone = core.claiming.alone();
        let (mut driver, mut sent) = (None, OptionFuture::default());
        match driving {
            Some(driving) if alone.is_some() => {
                ballot.in_round.store(false, Ordering::Release);
                driver = Some(Driver::new(core, ballot, driving).run().boxed());
            }
            // Many ask at once: all of them go together.
            Some(driving) => {
                let told = core.claiming.join((Arc::clone(ballot), driving), |departure| {
                    core.spawn(ask_gathered(Arc::clone(core), departure));
                });
                sent = Some(told).into();
            }
            None => {}
        }
        let mut decided = std::pin::pin!(async {
            tokio::select! {
                _ = told.wait_for(Phase::is_decided) => Ok(()),
                _ = closing.wait_for(|closed| *closed) => Err(closed()),
                Some(Err(_)) = &mut sent => Err(unsent()),
            }
        });
        let outcome = std::future::poll_fn(|context| {
            if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
                driver = None;
            }
            let known = ballot.phase.borrow().is_decided();
            if known { Poll::Ready(Ok(())) } else { decided.as_mut().poll(context) }
        })
        .await;
        // A withdrawal sees to what was sent itself.
        let withdrawn = ballot.is_withdrawn();
        if let Some(driver) = driver.filter(|_| !withdrawn) {
            // A withdrawal finds it there, or comes before.
            let mut task = ballot.task.lock();
            *task = core.spawn(driver);
            if task.is_none() {
                ballot.phase.send_replace(too_many());
            }
        }
        outcome
    }
}

/// Nobody sees to a claim any more.
pub(crate) fn too_many() -> Phase {
    let failure = Failure::new(ErrorKind::Unavailable, "too many claims wait on this connection");
    Phase::Failed(failure.in_doubt())
}

#[async_trait]
impl Engine for QuorumEngine {
    fn profile(&self) -> &Profile {
        &self.core.profile
    }

    fn source(&self) -> Source {
        self.core.source.clone()
    }

    fn signals(&self) -> &Signals {
        &self.core.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        self.core.check_open()?;
        self.check(claim)?;
        let ballot = self.core.ballot_for(claim);
        let phase = ballot.phase();
        if !matches!(phase, Phase::Granted(_) | Phase::Queued(_)) {
            if let Phase::Gone(GoneReason::Withdrawn) = phase {
                let message = "the claim was withdrawn before it arrived";
                return Err(error(ErrorKind::Lost, message).about(&claim.resource));
            }
            self.drive(&ballot).await?;
        }
        let until = ballot.tally.lock().until;
        match ballot.phase() {
            Phase::Granted(grant) => match claim.token_floor.filter(|floor| *floor >= grant.token) {
                Some(floor) => Ok(Claimed::Granted(self.core.lift(&ballot, floor).await?)),
                None => Ok(Claimed::Granted(Grant { valid_until: until, ..grant })),
            },
            Phase::Queued(place) => Ok(Claimed::Queued(Place { valid_until: until, ..place })),
            Phase::Busy(busy) => {
                // Unless it has used up ids, nothing about it is worth remembering.
                if ballot.tally.lock().seats.iter().all(|seat| seat.attempt == 0) {
                    self.core.forget(&ballot);
                }
                Ok(Claimed::Busy(busy))
            }
            Phase::Failed(failure) => Err(failure.error().about(&claim.resource)),
            Phase::Gone(reason) => {
                let message = format!("the claim ended as it was asked for: {reason:?}");
                Err(error(ErrorKind::Lost, message).about(&claim.resource))
            }
            Phase::Asking => {
                let message = "the claim was given up before it was decided";
                Err(error(ErrorKind::Unavailable, message).with_unknown_effect().about(&claim.resource))
            }
        }
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        self.core.check_open()?;
        let Some(ballot) = self.core.ballot(claim.id) else {
            return Ok(Waited::Gone(GoneReason::Unknown));
        };
        let mut told = ballot.phase.subscribe();
        let mut closing = self.core.closed.subscribe();
        let settled = |phase: &Phase| !matches!(phase, Phase::Asking | Phase::Queued(_));
        tokio::select! {
            biased;
            _ = told.wait_for(settled) => {}
            _ = closing.wait_for(|closed| *closed) => return Err(closed()),
        }
        let until = ballot.tally.lock().until;
        match ballot.phase() {
            Phase::Granted(grant) => Ok(Waited::Granted(Grant { valid_until: until, ..grant })),
            Phase::Gone(reason) => Ok(Waited::Gone(reason)),
            Phase::Failed(failure) => Err(failure.error().about(&claim.resource)),
            Phase::Asking | Phase::Queued(_) | Phase::Busy(_) => Ok(Waited::Gone(GoneReason::Unknown)),
        }
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.core.change(claim, change).await
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.core.renew(claims).await
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.core.withdraw(claims).await
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.core.inspect(selector, page).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.core.evict(resource, claim, reason).await
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.core.watch(selector).await
    }

    async fn read(&self, register: &Name, _raise: Option<&Raise>) -> Result<Reading> {
        Err(no_registers(register))
    }

    async fn write(
        &self,
        register: &Name,
        _value: Bytes,
        _condition: &Condition,
        _expires_in: Option<Duration>,
    ) -> Result<Written> {
        Err(no_registers(register))
    }

    async fn delete(&self, register: &Name, _condition: &Condition) -> Result<Written> {
        Err(no_registers(register))
    }

    async fn close(&self) {
        if self.core.shut() {
            let engines = self.core.voters.iter().filter_map(|voter| voter.engine().ok());
            join_all(engines.map(|engine| async move { engine.close().await })).await;
            self.core.signals.send(Signal::Connection(ConnectionState::Lost));
        }
    }
}
