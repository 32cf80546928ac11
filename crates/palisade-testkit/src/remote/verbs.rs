use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Condition, Engine, Evicted, Inspection, Name, Page, Profile,
    Raise, Reading, Renewed, Result, Selector, Signals, Source, Waited, WatchStream, Withdrawn, Written,
};

use super::engine::{Inner, RemoteEngine, unexpected};
use super::link::Pace;
use super::wire::{Answer, Ask, Hex, HowChanged, Key};

#[async_trait]
impl Engine for RemoteEngine {
    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// The one the server said first. A server that says another later is another server, and this
    /// value refuses to speak to it: guards of both would carry tokens that do not compare.
    fn source(&self) -> Source {
        self.0.source.clone()
    }

    fn signals(&self) -> &Signals {
        &self.0.notes.signals
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        let answered =
            self.0.ask(|| Ask::Claim((&**claim).into())).await.map_err(|error| about(error, claim))?;
        let Answer::Claimed(claimed) = answered.answer else { return Err(unexpected()) };
        let claimed = claimed.claimed(claim.ttl, answered.sent)?;
        if matches!(claimed, Claimed::Granted(_)) {
            self.0.notes.holds(claim);
        }
        Ok(claimed)
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        loop {
            // A connection that ends meanwhile ends nothing: the place is kept by the claim's id.
            let Some(answered) = self.0.ask_at(|| Ask::Wait(Key::of(claim)), Pace::WhenReady).await? else {
                continue;
            };
            let Answer::Waited(waited) = answered.answer else { return Err(unexpected()) };
            match waited.waited(claim.ttl, answered.sent)? {
                None => {}
                Some(Waited::Granted(grant)) => {
                    self.0.notes.holds(claim);
                    return Ok(Waited::Granted(grant));
                }
                Some(gone) => return Ok(gone),
            }
        }
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let answered = self.0.ask(|| Ask::Change(Key::of(claim), change.into())).await?;
        let Answer::Changed(changed) = answered.answer else { return Err(unexpected()) };
        Ok(match changed {
            HowChanged::Done => Changed::Done,
            HowChanged::Refused(why) => Changed::Refused(why.into()),
            HowChanged::Gone(reason) => {
                self.0.notes.forget(claim.id);
                Changed::Gone(reason.into())
            }
        })
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let answered = self.0.ask(|| Ask::Renew(keys(claims))).await?;
        let Answer::Renewed(renewed) = answered.answer else { return Err(unexpected()) };
        if renewed.len() != claims.len() {
            return Err(unexpected());
        }
        let renewed: Vec<Renewed> = claims
            .iter()
            .zip(renewed)
            .map(|(claim, renewed)| renewed.renewed(claim.ttl, answered.sent))
            .collect();
        for (claim, renewed) in claims.iter().zip(&renewed) {
            if matches!(renewed, Renewed::Gone(_)) {
                self.0.notes.forget(claim.id);
            }
        }
        Ok(renewed)
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        // Before it is asked: its client's own withdrawal is not told, whatever becomes of the answer.
        for claim in claims {
            self.0.notes.forget(claim.id);
        }
        let answered = self.0.ask(|| Ask::Withdraw(keys(claims))).await?;
        match answered.answer {
            Answer::Withdrawn(withdrawn) if withdrawn.len() == claims.len() => {
                Ok(withdrawn.into_iter().map(Withdrawn::from).collect())
            }
            _ => Err(unexpected()),
        }
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        match self.0.ask(|| Ask::Inspect(selector.into(), page.into())).await?.answer {
            Answer::Inspected(found) => found.try_into(),
            _ => Err(unexpected()),
        }
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let ask = || Ask::Evict { claim: Key::new(resource, claim), reason: reason.to_owned() };
        match self.0.ask(ask).await?.answer {
            Answer::Evicted(found) => Ok(if found { Evicted::Done } else { Evicted::NotFound }),
            _ => Err(unexpected()),
        }
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.0.watch(selector).await
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        let ask = || Ask::Read(register.to_string(), raise.map(Into::into));
        match self.0.ask(ask).await.map_err(|error| error.about(register))?.answer {
            Answer::Read(read) => read.try_into(),
            _ => Err(unexpected()),
        }
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.0.put(register, Some(value), condition, expires_in).await
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        self.0.put(register, None, condition, None).await
    }

    async fn close(&self) {
        self.0.close();
    }
}

impl Inner {
    async fn put(
        &self,
        register: &Name,
        value: Option<Bytes>,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        let expires_in = expires_in.map(|after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        let ask = || Ask::Write {
            register: register.to_string(),
            value: value.clone().map(Hex),
            condition: condition.into(),
            expires_in,
        };
        match self.ask(ask).await.map_err(|error| error.about(register))?.answer {
            Answer::Written(written) => written.try_into(),
            _ => Err(unexpected()),
        }
    }
}

fn keys(claims: &[Arc<Claim>]) -> Vec<Key> {
    claims.iter().map(|claim| Key::of(claim)).collect()
}

fn about(error: palisade_core::Error, claim: &Claim) -> palisade_core::Error {
    error.about(&claim.resource)
}
