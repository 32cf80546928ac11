use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Clock, Condition, Engine, Error, ErrorKind,
    Evicted, Inspection, Layer, Name, Page, Raise, Reading, Renewed, Result, Selector, Signals, Waited,
    Withdrawn, Written,
};
use parking_lot::Mutex;

use super::bug::Bug;
use super::clock::NodeClock;
use super::wire::{Answered, Envelope, Outcome, Reply, Request, Slot};
use super::world::{Happening, NodeId, World};
use crate::history::Nanos;

/// A node's end of the simulated network: what the client of a remote engine is.
///
/// It keeps the contract as such a client must: deadlines count from before a request was sent,
/// and a wait whose line is broken fails instead of hanging.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) world: World,
    pub(super) node: NodeId,
    pub(super) clock: NodeClock,
    /// The connection on the server's side.
    pub(super) remote: Arc<dyn Engine>,
    pub(super) signals: Signals,
    pub(super) bug: Option<Bug>,
    /// Until when each claim stands by what this node knows, on its own clock.
    pub(super) known: Mutex<BTreeMap<ClaimId, BootInstant>>,
}

impl Line {
    async fn call(&self, request: Request) -> Outcome {
        let slot = Arc::new(Slot::default());
        self.send(request, &slot);
        Answered(slot).await
    }

    fn send(&self, request: Request, slot: &Arc<Slot>) {
        let is_wait = matches!(request, Request::Wait(_));
        self.world.with(|state| {
            let mut journey = state.journey(self.node);
            if !request.can_be_repeated() {
                journey.twice = None;
            }
            let (node, verb, number) = (self.node, request.verb(), journey.number);
            state.note(format_args!("node {node} sends message {number}: {verb}"));
            let Some(silent) = journey.request_lost else {
                let engine = Arc::clone(&self.remote);
                let slot = Some(Arc::clone(slot));
                let envelope = Envelope { node, request, engine, journey, slot };
                state.plan_in(journey.there, Happening::Arrive(Box::new(envelope)));
                return;
            };
            state.note(format_args!("message {number} of node {node} is lost on its way there"));
            let after = if is_wait && silent { state.keep_alive() } else { journey.there };
            if (is_wait && self.bug != Some(Bug::BrokenLineUnnoticed)) || !silent {
                let error = Error::new(ErrorKind::Unavailable, "the line is cut");
                let outcome = Outcome { reply: Err(error), decided: state.now() };
                state.plan_in(after, Happening::Answered(node, Arc::clone(slot), Box::new(outcome)));
            }
        });
    }

    /// Until when a claim stands on this node's clock, if the server says `until` on its own.
    fn counted(&self, sent: BootInstant, decided: Nanos, until: BootInstant) -> BootInstant {
        let from = if self.bug == Some(Bug::CountsFromReply) { self.clock.now() } else { sent };
        from + until.saturating_since(BootInstant::from_nanos(decided))
    }

    fn know(&self, claim: ClaimId, until: BootInstant) {
        let mut known = self.known.lock();
        let entry = known.entry(claim).or_insert(until);
        *entry = until.max(*entry);
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::new(ErrorKind::Internal, format!("an answer to something else: {reply:?}"))
}

/// Asks, and takes the one kind of answer that fits.
macro_rules! ask {
    ($self:ident, $request:expr, $kind:ident) => {
        match $self.call($request).await.reply? {
            Reply::$kind(answer) => Ok(answer),
            other => Err(unexpected(&other)),
        }
    };
}

#[async_trait]
impl Layer for Line {
    fn inner(&self) -> &dyn Engine {
        &*self.remote
    }

    fn signals(&self) -> &Signals {
        &self.signals
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        let sent = self.clock.now();
        let Outcome { reply, decided } = self.call(Request::Claim(Arc::clone(claim))).await;
        match reply? {
            Reply::Claimed(Claimed::Granted(mut grant)) => {
                grant.valid_until = self.counted(sent, decided, grant.valid_until);
                self.know(claim.id, grant.valid_until);
                Ok(Claimed::Granted(grant))
            }
            Reply::Claimed(Claimed::Queued(mut place)) => {
                place.valid_until = self.counted(sent, decided, place.valid_until);
                self.know(claim.id, place.valid_until);
                Ok(Claimed::Queued(place))
            }
            Reply::Claimed(busy) => Ok(busy),
            other => Err(unexpected(&other)),
        }
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let sent = self.clock.now();
        let Outcome { reply, decided } = self.call(Request::Wait(Arc::clone(claim))).await;
        match reply? {
            Reply::Waited(Waited::Granted(mut grant)) => {
                // The wait itself refreshed nothing: what counts is the last refresh that is known.
                let known = self.known.lock().get(&claim.id).copied();
                let counted = self.counted(sent, decided, grant.valid_until);
                grant.valid_until = match self.bug {
                    Some(Bug::CountsFromReply) => counted,
                    _ => known.unwrap_or(counted),
                };
                Ok(Waited::Granted(grant))
            }
            Reply::Waited(gone) => Ok(gone),
            other => Err(unexpected(&other)),
        }
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        ask!(self, Request::Change(Arc::clone(claim), change.clone()), Changed)
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let sent = self.clock.now();
        if self.bug == Some(Bug::RenewsOnPaper) {
            let until = |claim: &Arc<Claim>| Renewed::Valid { until: sent + claim.ttl.as_duration() };
            return Ok(claims.iter().map(until).collect());
        }
        let Outcome { reply, decided } = self.call(Request::Renew(claims.to_vec())).await;
        let Reply::Renewed(mut answers) = reply? else {
            return Err(Error::new(ErrorKind::Internal, "an answer to something else"));
        };
        for (claim, answer) in claims.iter().zip(&mut answers) {
            if let Renewed::Valid { until } = answer {
                *until = self.counted(sent, decided, *until);
                self.know(claim.id, *until);
            }
        }
        Ok(answers)
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        if self.bug == Some(Bug::ReleasesOnPaper) {
            return Ok(vec![Withdrawn::Released; claims.len()]);
        }
        ask!(self, Request::Withdraw(claims.to_vec()), Withdrawn)
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        ask!(self, Request::Inspect(selector.clone(), page.clone()), Inspected)
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        ask!(self, Request::Evict(resource.clone(), claim, reason.to_owned()), Evicted)
    }

    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        ask!(self, Request::Read(register.clone(), raise.cloned()), Read)
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        ask!(self, Request::Write(register.clone(), value, condition.clone(), expires_in), Written)
    }

    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written> {
        ask!(self, Request::Delete(register.clone(), condition.clone()), Written)
    }
}
