//! What many tasks ask for at once: one call per node for all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::stream::{self, FuturesUnordered, StreamExt};
use palisade_core::{BootInstant, Claim, Claimed, Departure, Effect, Result, Withdrawn};
use tokio::sync::{OwnedMutexGuard, mpsc};

use crate::ballot::Ballot;
use crate::core::Core;
use crate::drive::{Driver, Step};
use crate::error::{Failure, closed};
use crate::limit::Limit;

/// How many claims go in one call.
const AT_ONCE: usize = 64;

/// How many such calls a node is sent at a time. More than one, because each ends only with the slowest node.
const ROUNDS: usize = 8;

/// How long claims and withdrawals wait at most until nothing is under way, to go together: each call is as much work
/// for a node as several claims, but distant nodes must not be waited for.
const PATIENCE: Duration = Duration::from_micros(500);

/// A ballot, and the right to send its claims.
pub(crate) type Candidate = (Arc<Ballot>, OwnedMutexGuard<()>);

impl Core {
    /// Withdraws a claim, together with others if many withdraw.
    pub(crate) async fn withdraw_soon(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Withdrawn> {
        let alone = self.withdrawing.alone();
        if alone.is_none() {
            let told = self.withdrawing.join(Arc::clone(claim), |departure| {
                self.spawn(withdraw_gathered(Arc::clone(self), departure));
            });
            if let Ok(answer) = told.await {
                return answer;
            }
        }
        let mut answers = self.withdraw_each(std::slice::from_ref(claim)).await;
        answers.pop().unwrap_or_else(|| self.check_open().map(|()| Withdrawn::AlreadyGone))
    }

    /// Asks a node for several claims at once.
    async fn ask_each(&self, limit: Limit, node: usize, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        let all: Vec<Arc<Claim>> = claims.to_vec();
        let asking = self.ask(limit, node, |engine| async move { heard(engine.claim_each(&all).await) });
        asking.await.unwrap_or_else(|error| {
            let failure = Failure::of(&error);
            claims.iter().map(|_| Err(failure.error())).collect()
        })
    }
}

/// The answers of a node; an error if it gave none.
fn heard(answers: Vec<Result<Claimed>>) -> Result<Vec<Result<Claimed>>> {
    let silence = |answer: &Result<Claimed>| match answer {
        Err(error) if error.is_transient() => Some(Failure::of(error)),
        _ => None,
    };
    let silences: Option<Vec<Failure>> = answers.iter().map(silence).collect();
    let doubtful = |failure: &Failure| failure.effect == Effect::Unknown;
    match silences {
        Some(silences) if silences.iter().any(doubtful) => {
            Err(silences.into_iter().find(doubtful).map_or_else(closed, |failure| failure.error()))
        }
        Some(silences) if !silences.is_empty() => Err(silences[0].error()),
        _ => Ok(answers),
    }
}

async fn withdraw_gathered(core: Arc<Core>, departure: Departure<Arc<Claim>, Result<Withdrawn>>) {
    core.withdrawing.until_none(PATIENCE).await;
    let gathered = departure.leave().await;
    let _under_way = core.withdrawing.depart();
    let claims: Vec<Arc<Claim>> = gathered.iter().map(|one| Arc::clone(&one.question)).collect();
    let answers = core.withdraw_each(&claims).await;
    for (one, answer) in gathered.into_iter().zip(answers) {
        one.tell(answer);
    }
}

/// Sends the claims of all who came together.
pub(crate) async fn ask_gathered(core: Arc<Core>, departure: Departure<Candidate, ()>) {
    core.claiming.until_none(PATIENCE).await;
    let mut candidates: Vec<Candidate> = Vec::new();
    for one in departure.leave().await {
        let (candidate, tell) = one.into_parts();
        // From here on, the ballot's phase tells.
        let _ = tell.send(());
        candidates.push(candidate);
    }
    let _under_way = core.claiming.depart();
    let mut portions = Vec::new();
    while !candidates.is_empty() {
        let rest = candidates.split_off(candidates.len().min(AT_ONCE));
        portions.push(std::mem::replace(&mut candidates, rest));
    }
    let rounds = stream::iter(portions).map(|some| Round::new(&core, some).run());
    // One after the other, so that what is asked last does not run out of time before a node comes to it.
    rounds.buffer_unordered(ROUNDS).for_each(|()| std::future::ready(())).await;
}

/// Some claims that are asked for together: as many drivers, and one call per node.
///
/// A driver whose claim needs more than that, because votes differ or rivals are in line, goes its own way.
struct Round {
    core: Arc<Core>,
    /// Until each has come to an end or goes its own way.
    drivers: Vec<Option<Driver>>,
    /// How to tell those who went their own way what else comes of the round.
    gone: Vec<Option<mpsc::UnboundedSender<Step>>>,
    asked: BootInstant,
    /// What to ask of each node, and for which driver.
    shares: Vec<Vec<(usize, Arc<Claim>)>>,
}

impl Round {
    fn new(core: &Arc<Core>, candidates: Vec<Candidate>) -> Self {
        let asked = core.clock.now();
        // Who withdrew while this waited for its turn was told that nothing was sent.
        let candidates = candidates.into_iter().filter(|(ballot, _)| !ballot.is_gone());
        let mut shares = vec![Vec::new(); core.nodes()];
        let mut drivers = Vec::new();
        for (at, (ballot, driving)) in candidates.enumerate() {
            ballot.in_round.store(true, Ordering::Release);
            let mut driver = Driver::new(core, &ballot, driving);
            for (node, claim) in driver.open(asked) {
                shares[node].push((at, claim));
            }
            drivers.push(Some(driver));
        }
        let gone = drivers.iter().map(|_| None).collect();
        Self { core: Arc::clone(core), drivers, gone, asked, shares }
    }

    async fn run(mut self) {
        let core = Arc::clone(&self.core);
        let shares = std::mem::take(&mut self.shares);
        let limit = core.limit();
        let ask = |(node, share): (usize, Vec<(usize, Arc<Claim>)>)| {
            let (core, limit) = (&core, limit.clone());
            async move {
                let claims: Vec<Arc<Claim>> = share.iter().map(|(_, claim)| Arc::clone(claim)).collect();
                let answers = core.ask_each(limit, node, &claims).await;
                (node, share, answers)
            }
        };
        let asked = shares.into_iter().enumerate().filter(|(_, share)| !share.is_empty());
        let mut calls: FuturesUnordered<_> = asked.map(ask).collect();
        for at in 0..self.gone.len() {
            self.decide(at);
        }
        while !calls.is_empty() {
            let settled = self.settled_at();
            let wake = (settled != BootInstant::FAR_FUTURE).then(|| core.clock.sleep_until(settled));
            let wake: futures::future::OptionFuture<_> = wake.into();
            tokio::select! {
                biased;
                Some((node, share, answers)) = calls.next() => {
                    for ((at, claim), answer) in share.into_iter().zip(answers) {
                        self.take(at, claim, node, answer);
                    }
                }
                Some(()) = wake => self.settle(),
            }
        }
        for driver in self.drivers.into_iter().flatten() {
            driver.end();
        }
    }

    /// Hands a driver an answer. What comes too late for it is given back: a withdrawal may have overtaken it.
    fn take(&mut self, at: usize, claim: Arc<Claim>, node: usize, answer: Result<Claimed>) {
        let nothing = matches!(&answer, Ok(Claimed::Busy(_)))
            || matches!(&answer, Err(error) if error.effect() == Effect::None);
        let step = Step::Claimed { node, asked: self.asked, answer };
        let late;
        if let Some(gone) = &self.gone[at] {
            late = gone.send(step).is_err();
        } else if let Some(driver) = &mut self.drivers[at] {
            driver.take_awaited(step);
            let ballot = driver.ballot();
            late = ballot.is_withdrawn() && ballot.tally.lock().granted.is_some();
        } else {
            late = true;
        }
        if late && !nothing {
            self.core.withdraw_later(node, vec![claim]);
        }
        self.decide(at);
    }

    /// Takes a driver's next step, and lets it go if it is over, or is not for the round to see to.
    fn decide(&mut self, at: usize) {
        let Some(driver) = &mut self.drivers[at] else { return };
        // Whoever withdraws it waits until nothing of it is under way.
        let over = if driver.ballot().is_withdrawn() { driver.has_all() } else { driver.decide() };
        if !over && !driver.acts_alone() {
            return;
        }
        let Some(mut driver) = self.drivers[at].take() else { return };
        if over {
            return driver.end();
        }
        let (send, late) = mpsc::unbounded_channel();
        self.gone[at] = Some(send);
        driver.goes_on(late);
        let ballot = driver.ballot();
        ballot.in_round.store(false, Ordering::Release);
        let mut task = ballot.task.lock();
        *task = self.core.spawn(driver.go_on());
        if task.is_none() {
            ballot.tell(crate::engine::too_many());
        }
    }

    /// When the first driver has waited long enough for the last nodes.
    fn settled_at(&self) -> BootInstant {
        let ends = self.drivers.iter().flatten().map(Driver::wake_at);
        ends.min().unwrap_or(BootInstant::FAR_FUTURE)
    }

    fn settle(&mut self) {
        let now = self.core.clock.now();
        for at in 0..self.gone.len() {
            if let Some(driver) = self.drivers[at].as_mut().filter(|driver| driver.wake_at() <= now) {
                driver.wake();
                self.decide(at);
            }
        }
    }
}
