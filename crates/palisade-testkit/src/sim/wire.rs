//! What travels between a simulated node and the server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use palisade_core::{
    Change, Changed, Claim, ClaimId, Claimed, Condition, Engine, Evicted, Inspection, Name, Page, Raise,
    Reading, Renewed, Result, Selector, Waited, Withdrawn, Written,
};
use parking_lot::Mutex;

use super::world::{Journey, NodeId};
use crate::history::Nanos;

/// What is asked.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Claim(Arc<Claim>),
    Wait(Arc<Claim>),
    Change(Arc<Claim>, Change),
    Renew(Vec<Arc<Claim>>),
    Withdraw(Vec<Arc<Claim>>),
    Inspect(Selector, Page),
    Evict(Name, ClaimId, String),
    Read(Name, Option<Raise>),
    Write(Name, Bytes, Condition, Option<Duration>),
    Delete(Name, Condition),
}

impl Request {
    /// For the trace.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Claim(_) => "claim",
            Self::Wait(_) => "wait",
            Self::Change(..) => "change",
            Self::Renew(_) => "renew",
            Self::Withdraw(_) => "withdraw",
            Self::Inspect(..) => "inspect",
            Self::Evict(..) => "evict",
            Self::Read(..) => "read",
            Self::Write(..) => "write",
            Self::Delete(..) => "delete",
        }
    }

    /// Whether doing it twice is the same as doing it once, so that a line may deliver it twice.
    pub(super) fn can_be_repeated(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Renew(_) | Self::Withdraw(_) | Self::Inspect(..))
    }

    /// Asks `engine`.
    pub(super) async fn carry_out(self, engine: Arc<dyn Engine>) -> Result<Reply> {
        Ok(match self {
            Self::Claim(claim) => Reply::Claimed(engine.claim(&claim).await?),
            Self::Wait(claim) => Reply::Waited(engine.wait(&claim).await?),
            Self::Change(claim, change) => Reply::Changed(engine.change(&claim, &change).await?),
            Self::Renew(claims) => Reply::Renewed(engine.renew(&claims).await?),
            Self::Withdraw(claims) => Reply::Withdrawn(engine.withdraw(&claims).await?),
            Self::Inspect(selector, page) => Reply::Inspected(engine.inspect(&selector, &page).await?),
            Self::Evict(name, claim, reason) => Reply::Evicted(engine.evict(&name, claim, &reason).await?),
            Self::Read(name, raise) => Reply::Read(engine.read(&name, raise.as_ref()).await?),
            Self::Write(name, value, condition, expires_in) => {
                Reply::Written(engine.write(&name, value, &condition, expires_in).await?)
            }
            Self::Delete(name, condition) => Reply::Written(engine.delete(&name, &condition).await?),
        })
    }
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Reply {
    Claimed(Claimed),
    Waited(Waited),
    Changed(Changed),
    Renewed(Vec<Renewed>),
    Withdrawn(Vec<Withdrawn>),
    Inspected(Inspection),
    Evicted(Evicted),
    Read(Reading),
    Written(Written),
}

/// What became of a request, and when the server decided it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) reply: Result<Reply>,
    pub(super) decided: Nanos,
}

/// A request on its way.
pub(super) struct Envelope {
    pub(super) node: NodeId,
    pub(super) request: Request,
    /// The node's connection, on the server's side.
    pub(super) engine: Arc<dyn Engine>,
    pub(super) journey: Journey,
    /// `None` for what arrives a second time: nobody waits for its answer.
    pub(super) slot: Option<Arc<Slot>>,
}

/// Where an answer is put, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<(Option<Outcome>, Option<Waker>)>);

impl Slot {
    pub(super) fn put(&self, outcome: Outcome) {
        let waker = {
            let mut slot = self.0.lock();
            slot.0 = Some(outcome);
            slot.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits for an answer.
pub(super) struct Answered(pub(super) Arc<Slot>);

impl Future for Answered {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut slot = self.0.0.lock();
        if let Some(outcome) = slot.0.take() {
            return Poll::Ready(outcome);
        }
        slot.1 = Some(context.waker().clone());
        Poll::Pending
    }
}
