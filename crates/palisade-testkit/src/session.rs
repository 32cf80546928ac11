use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use palisade_core::{
    Busy, Claim, ClaimId, Claimed, Condition, Engine, Entry, FencingToken, GoneReason, Grant, Inspection,
    Name, Page, Place, Reading, Refusal, Renewed, ResourceView, Selector, Version, Waited, Withdrawn,
    Written,
};

use crate::context::bounded;

/// One connection, with verbs that say what a case expects.
///
/// Derefs to the engine, for everything else.
#[derive(Debug, Clone)]
pub struct Session {
    engine: Arc<dyn Engine>,
    patience: Duration,
}

impl Deref for Session {
    type Target = dyn Engine;

    fn deref(&self) -> &(dyn Engine + 'static) {
        &*self.engine
    }
}

impl Session {
    /// A session over `engine`, in which a step that takes longer than `patience` has failed.
    pub fn new(engine: Arc<dyn Engine>, patience: Duration) -> Self {
        Self { engine, patience }
    }

    /// The engine itself, for clients above it.
    pub fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine)
    }

    async fn ask(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        Ok(bounded(self.patience, "claim", self.claim(claim)).await??)
    }

    /// Claims, and must be granted at once.
    pub(crate) async fn take(&self, claim: &Arc<Claim>) -> Result<Grant> {
        match self.ask(claim).await? {
            Claimed::Granted(grant) => Ok(grant),
            other => bail!("{} {:?} should have been granted, but is {other:?}", claim.mode, claim.resource),
        }
    }

    /// Claims, and must be queued.
    pub(crate) async fn queue(&self, claim: &Arc<Claim>) -> Result<Place> {
        match self.ask(claim).await? {
            Claimed::Queued(place) => Ok(place),
            other => bail!("{} {:?} should have been queued, but is {other:?}", claim.mode, claim.resource),
        }
    }

    /// Claims without waiting, and must be turned away.
    pub(crate) async fn turned_away(&self, claim: Claim) -> Result<Busy> {
        let claim = Arc::new(claim.no_wait());
        match self.ask(&claim).await? {
            Claimed::Busy(busy) => Ok(busy),
            other => bail!("{} {:?} should have been busy, but is {other:?}", claim.mode, claim.resource),
        }
    }

    async fn await_turn(&self, claim: &Arc<Claim>, limit: Duration) -> Result<Waited> {
        Ok(bounded(limit, "wait", self.wait(claim)).await??)
    }

    /// Waits for the claim's turn, which must come.
    pub(crate) async fn turn(&self, claim: &Arc<Claim>) -> Result<Grant> {
        self.turn_within(claim, self.patience).await
    }

    /// Waits for the claim's turn, which must come within `limit`.
    pub(crate) async fn turn_within(&self, claim: &Arc<Claim>, limit: Duration) -> Result<Grant> {
        match self.await_turn(claim, limit).await? {
            Waited::Granted(grant) => Ok(grant),
            Waited::Gone(reason) => bail!("the claim should have been granted, but is gone: {reason:?}"),
        }
    }

    /// Waits for a claim that must turn out to be gone.
    pub(crate) async fn gone(&self, claim: &Arc<Claim>) -> Result<GoneReason> {
        match self.await_turn(claim, self.patience).await? {
            Waited::Gone(reason) => Ok(reason),
            Waited::Granted(grant) => bail!("the claim should be gone, but was granted: {grant:?}"),
        }
    }

    /// Takes a resource in whatever time that needs.
    pub(crate) async fn acquire(&self, claim: &Arc<Claim>) -> Result<Grant> {
        match self.ask(claim).await? {
            Claimed::Granted(grant) => Ok(grant),
            Claimed::Queued(_) => self.turn(claim).await,
            Claimed::Busy(_) => bail!("a claim that will wait was turned away"),
        }
    }

    /// Withdraws one claim.
    pub(crate) async fn give_back(&self, claim: &Arc<Claim>) -> Result<Withdrawn> {
        let answers =
            bounded(self.patience, "withdraw", self.withdraw(std::slice::from_ref(claim))).await??;
        ensure!(answers.len() == 1, "one claim was withdrawn, {} answers came", answers.len());
        Ok(answers[0])
    }

    /// Withdraws one claim that must be held.
    pub(crate) async fn release(&self, claim: &Arc<Claim>) -> Result<()> {
        let answer = self.give_back(claim).await?;
        ensure!(answer == Withdrawn::Released, "it was held, but its withdrawal says {answer:?}");
        Ok(())
    }

    /// Renews one claim.
    pub(crate) async fn renew_one(&self, claim: &Arc<Claim>) -> Result<Renewed> {
        let mut answers = bounded(self.patience, "renew", self.renew(std::slice::from_ref(claim))).await??;
        ensure!(answers.len() == 1, "one claim was renewed, {} answers came", answers.len());
        answers.pop().context("no answer")
    }

    /// All resources of the namespace, on one page.
    pub(crate) async fn everything(&self) -> Result<Inspection> {
        let all = Selector::resources("");
        Ok(bounded(self.patience, "inspect", self.inspect(&all, &Page::default())).await??)
    }

    /// One resource as it stands.
    pub(crate) async fn view(&self, resource: &Name) -> Result<ResourceView> {
        let one = Selector::resource(resource.clone());
        let seen = bounded(self.patience, "inspect", self.inspect(&one, &Page::default())).await??;
        ensure!(seen.resources.len() <= 1, "one resource was asked for, {} came", seen.resources.len());
        Ok(seen.resources.into_iter().next().unwrap_or_else(|| ResourceView::free(resource.clone())))
    }

    pub(crate) async fn holders(&self, resource: &Name) -> Result<Vec<ClaimId>> {
        Ok(self.view(resource).await?.holders.iter().map(|holder| holder.claim).collect())
    }

    pub(crate) async fn waiters(&self, resource: &Name) -> Result<Vec<ClaimId>> {
        Ok(self.view(resource).await?.waiters.iter().map(|waiter| waiter.claim).collect())
    }

    /// No claim of the namespace may be left.
    pub(crate) async fn nothing_left(&self) -> Result<()> {
        let left = self.everything().await?.resources;
        ensure!(left.is_empty(), "nothing should be left, but there is {left:?}");
        Ok(())
    }

    /// The token of a grant, with what a fence needs.
    pub(crate) fn fencing(&self, claim: &Claim, grant: &Grant) -> FencingToken {
        FencingToken::of_grant(grant.token, claim.mode, grant.slot, self.source())
    }

    /// A register as it stands.
    pub(crate) async fn entry(&self, register: &Name) -> Result<Entry> {
        match bounded(self.patience, "read", self.read(register, None)).await?? {
            Reading::Fresh(entry) => Ok(entry),
            Reading::Refused(refusal) => bail!("a plain read was refused: {refusal:?}"),
        }
    }

    async fn store(&self, register: &Name, value: &str, condition: &Condition) -> Result<Written> {
        let value = Bytes::copy_from_slice(value.as_bytes());
        Ok(bounded(self.patience, "write", self.write(register, value, condition, None)).await??)
    }

    /// Writes, and must succeed.
    pub(crate) async fn put(&self, register: &Name, value: &str, condition: &Condition) -> Result<Version> {
        match self.store(register, value, condition).await? {
            Written::Done(version) => Ok(version),
            Written::Refused(refusal) => bail!("the write should have passed, but {refusal:?}"),
        }
    }

    /// Writes, and must be refused.
    pub(crate) async fn refused(
        &self,
        register: &Name,
        value: &str,
        condition: &Condition,
    ) -> Result<Refusal> {
        match self.store(register, value, condition).await? {
            Written::Refused(refusal) => Ok(refusal),
            Written::Done(version) => bail!("the write should have been refused, but is version {version}"),
        }
    }
}
