use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use palisade_core::{BootInstant, Busy, Claimed, Engine, Error, ErrorKind, Result, Written};
use parking_lot::Mutex;

use super::bug::Bug;
use super::truth::Truth;
use super::wire::{Envelope, Outcome, Reply, Request, Slot};
use super::world::{Happening, Journey, NodeId, World};

/// The far end of all lines: it carries out what arrives, on a store that all nodes share.
pub(super) struct Server {
    world: World,
    bug: Option<Bug>,
    running: BTreeMap<u64, Running>,
    next: u64,
    /// Who can go on.
    woken: Arc<Mutex<Vec<u64>>>,
    truth: Truth,
}

/// A request that is being carried out.
struct Running {
    work: BoxFuture<'static, Result<Reply>>,
    waker: Waker,
    request: Request,
    engine: Arc<dyn Engine>,
    node: NodeId,
    journey: Journey,
    slot: Option<Arc<Slot>>,
}

struct Bell {
    number: u64,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.lock().push(self.number);
    }
}

impl Server {
    pub(super) fn new(world: World, bug: Option<Bug>) -> Self {
        Self { world, bug, running: BTreeMap::new(), next: 0, woken: Arc::default(), truth: Truth::default() }
    }

    /// Takes a request that has come.
    pub(super) fn arrive(&mut self, envelope: Envelope) {
        let Envelope { node, request, engine, mut journey, slot } = envelope;
        if let Some(after) = journey.twice.take() {
            let (request, engine) = (request.clone(), Arc::clone(&engine));
            let again = Envelope { node, request, engine, journey, slot: None };
            self.world.with(|state| state.plan_in(after, Happening::Arrive(Box::new(again))));
        }
        self.next += 1;
        let number = self.next;
        let bell = Bell { number, woken: Arc::clone(&self.woken) };
        let work = match self.refuse(&request) {
            Some(reply) => Box::pin(std::future::ready(reply)),
            None => Box::pin(request.clone().carry_out(Arc::clone(&engine))) as BoxFuture<'static, _>,
        };
        let running =
            Running { work, waker: Waker::from(Arc::new(bell)), request, engine, node, journey, slot };
        self.running.insert(number, running);
        self.go_on(number);
    }

    /// Lets everything go on that can. Returns whether anything could.
    pub(super) fn run(&mut self) -> bool {
        let woken = std::mem::take(&mut *self.woken.lock());
        for number in &woken {
            self.go_on(*number);
        }
        !woken.is_empty()
    }

    /// A withdrawal wins over a claim that is still on its way, as the contract says: real servers
    /// need a mark per withdrawn claim for it.
    fn refuse(&self, request: &Request) -> Option<Result<Reply>> {
        match request {
            Request::Claim(claim)
                if self.world.with(|state| state.withdrawn.contains(&claim.id))
                    && self.bug != Some(Bug::ClaimOutlivesWithdrawal) =>
            {
                Some(Ok(Reply::Claimed(Claimed::Busy(Busy { holders: Vec::new(), look_again_in: None }))))
            }
            Request::Withdraw(claims) => {
                self.world.with(|state| state.withdrawn.extend(claims.iter().map(|claim| claim.id)));
                None
            }
            _ => None,
        }
    }

    fn go_on(&mut self, number: u64) {
        let Some(running) = self.running.get_mut(&number) else { return };
        let waker = running.waker.clone();
        let Poll::Ready(reply) = running.work.as_mut().poll(&mut Context::from_waker(&waker)) else { return };
        let Some(running) = self.running.remove(&number) else { return };
        self.note(&running, &reply);
        self.answer(running, reply);
    }

    /// Keeps what only the server knows, and looks whether it broke a rule.
    fn note(&mut self, running: &Running, reply: &Result<Reply>) {
        let (node, number, verb) = (running.node, running.journey.number, running.request.verb());
        let now = self.world.with(|state| {
            let what = brief(reply);
            state.note(format_args!("the server did message {number} of node {node}: {verb}: {what}"));
            BootInstant::from_nanos(state.now())
        });
        for (checker, key, what) in self.truth.take_in(&running.request, reply, &*running.engine, now) {
            self.world.violated(checker, key.as_str(), Vec::new(), what);
        }
    }

    fn answer(&self, running: Running, reply: Result<Reply>) {
        let Running { node, journey, slot: Some(slot), request, .. } = running else { return };
        self.world.with(|state| {
            let lost = journey.answer_lost.or(state.links[node].no_answers);
            let decided = state.now();
            let Some(silent) = lost else {
                let outcome = Outcome { reply, decided };
                state.plan_in(journey.back, Happening::Answered(node, slot, Box::new(outcome)));
                return;
            };
            state.note(format_args!("the answer to message {} of node {node} is lost", journey.number));
            let is_wait = matches!(request, Request::Wait(_));
            if is_wait || !silent {
                let error = Error::new(ErrorKind::Unavailable, "the line broke").with_unknown_effect();
                let outcome = Outcome { reply: Err(error), decided };
                let after = if silent { state.keep_alive() } else { journey.back };
                state.plan_in(after, Happening::Answered(node, slot, Box::new(outcome)));
            }
        });
    }
}

/// An answer in a few words, without what differs from process to process.
fn brief(reply: &Result<Reply>) -> String {
    match reply {
        Ok(Reply::Claimed(Claimed::Granted(grant))) => format!("granted, token {}", grant.token),
        Ok(Reply::Claimed(Claimed::Queued(place))) => format!("queued behind {}", place.ahead),
        Ok(Reply::Claimed(Claimed::Busy(_))) => "busy".to_owned(),
        Ok(Reply::Inspected(_)) => "shown".to_owned(),
        Ok(Reply::Read(_)) => "read".to_owned(),
        Ok(Reply::Written(Written::Done(version))) => format!("written, version {version}"),
        Ok(Reply::Written(Written::Refused(refusal))) => format!("refused: {}", refusal.reason),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}
