use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{
    BootInstant, Claim, ClaimId, Clock, ConnectionState, Engine, Gather, Profile, Result, Signal, Signals,
    Source, Token, Traffic, Withdrawn,
};
use parking_lot::Mutex;
use rand::RngExt;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::attempt::{self, Family};
use crate::ballot::{Ballot, Seat};
use crate::error::closed;
use crate::limit::Limit;
use crate::together::Candidate;
use crate::token::Hints;
use crate::voter::Voter;

/// What all verbs and background tasks of one engine value share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) voters: Vec<Voter>,
    pub(crate) majority: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node_timeout: Duration,
    pub(crate) longest_ttl: Duration,
    pub(crate) profile: Profile,
    pub(crate) source: Source,
    pub(crate) signals: Signals,
    pub(crate) hints: Hints,
    pub(crate) claiming: Gather<Candidate, ()>,
    pub(crate) withdrawing: Gather<Arc<Claim>, Result<Withdrawn>>,
    pub(crate) closed: watch::Sender<bool>,
    /// A node went out of reach: who waits there must go elsewhere.
    pub(crate) reach: Notify,
    suspended: Mutex<bool>,
    ballots: Mutex<Ballots>,
    runtime: Handle,
    /// Everything that runs in the background; ends with this value.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Ballots {
    by_family: HashMap<Family, Arc<Ballot>>,
    /// How many there may be before the ended ones are thrown away.
    sweep_at: usize,
}

impl Core {
    /// More background work than this is left to the TTLs.
    const TASKS: usize = 16_384;
    /// Fewer ballots than this are not worth a sweep.
    const FEW: usize = 1024;

    pub(crate) fn new(
        config: crate::QuorumConfig,
        profile: Profile,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let traffic = Arc::<Traffic>::default();
        Self {
            majority: config.nodes.len() / 2 + 1,
            hints: Hints::new(config.longest_ttl),
            source: Source::new(config.source),
            voters: config.nodes.into_iter().map(Voter::new).collect(),
            clock,
            node_timeout: config.node_timeout,
            longest_ttl: config.longest_ttl,
            profile,
            signals: Signals::new(),
            claiming: Gather::among(Arc::clone(&traffic)),
            withdrawing: Gather::among(traffic),
            closed: watch::Sender::new(false),
            reach: Notify::new(),
            suspended: Mutex::new(false),
            ballots: Mutex::default(),
            runtime,
            tasks: Mutex::default(),
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.voters.len()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.closed.borrow() { Err(closed()) } else { Ok(()) }
    }

    /// Runs something in the background, for as long as this value lives.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        if *self.closed.borrow() || tasks.len() >= Self::TASKS {
            return None;
        }
        Some(tasks.spawn_on(work, &self.runtime))
    }

    /// Ends everything that runs in the background, and every verb that waits.
    pub(crate) fn shut(&self) -> bool {
        let news = !self.closed.send_replace(true);
        self.tasks.lock().abort_all();
        news
    }

    /// For how long nodes that are asked now for a vote may take.
    pub(crate) fn limit(&self) -> Limit {
        Limit::new(&*self.clock, self.node_timeout)
    }

    /// For how long nodes that are asked now about so many claims that exist may take. Longer than for a vote: nobody
    /// waits for the slowest, only for a majority.
    pub(crate) fn limit_about(&self, claims: usize) -> Limit {
        let more = Duration::from_millis(1).saturating_mul(u32::try_from(claims).unwrap_or(u32::MAX));
        Limit::new(&*self.clock, self.node_timeout * 4 + more)
    }

    /// Asks a node, which has until the limit to answer.
    pub(crate) async fn ask<T, Asking: Future<Output = Result<T>>>(
        &self,
        limit: Limit,
        node: usize,
        verb: impl FnOnce(Arc<dyn Engine>) -> Asking,
    ) -> Result<T> {
        let engine = self.voters[node].engine().map_err(|failure| failure.error())?;
        let answer = limit.keep(verb(engine)).await;
        self.heard(node, !matches!(&answer, Err(error) if error.is_transient()));
        answer
    }

    /// Notes whether a node answers, and tells who wants to know.
    pub(crate) fn heard(&self, node: usize, up: bool) {
        if !self.voters[node].set_up(up) {
            return;
        }
        tracing::debug!(node = self.voters[node].node.name, up, "a node's reach changed");
        let reached = self.voters.iter().filter(|voter| voter.is_up()).count() >= self.majority;
        let mut suspended = self.suspended.lock();
        if reached == *suspended {
            *suspended = !reached;
            let state = if reached { ConnectionState::Reconnected } else { ConnectionState::Suspended };
            self.signals.send(Signal::Connection(state));
        }
        drop(suspended);
        self.reach.notify_waiters();
    }

    /// The votes that count, with the end of each.
    pub(crate) fn votes(&self, seats: &[Seat], now: BootInstant) -> Vec<(usize, Token, BootInstant)> {
        let votes = seats.iter().enumerate().filter_map(|(node, seat)| {
            let token = seat.token()?;
            (seat.until > now && self.voters[node].counts(seat.asked, now, self.longest_ttl))
                .then_some((node, token, seat.until))
        });
        votes.collect()
    }

    pub(crate) fn ballot(&self, id: ClaimId) -> Option<Arc<Ballot>> {
        self.ballots.lock().by_family.get(&attempt::family(id)).cloned()
    }

    /// The ballot of a claim, made if there is none.
    pub(crate) fn ballot_for(&self, claim: &Arc<Claim>) -> Arc<Ballot> {
        let now = self.clock.now();
        let mut ballots = self.ballots.lock();
        if ballots.by_family.len() >= ballots.sweep_at {
            ballots.by_family.retain(|_, ballot| !is_over(ballot, now));
            ballots.sweep_at = (ballots.by_family.len() * 2).max(Self::FEW);
        }
        let family = attempt::family(claim.id);
        let fresh = || Arc::new(Ballot::new(claim, self.nodes(), now));
        Arc::clone(ballots.by_family.entry(family).or_insert_with(fresh))
    }

    /// Forgets a ballot of which nothing is left on any node.
    pub(crate) fn forget(&self, ballot: &Arc<Ballot>) {
        let family = attempt::family(ballot.claim.id);
        let mut ballots = self.ballots.lock();
        if ballots.by_family.get(&family).is_some_and(|known| Arc::ptr_eq(known, ballot)) {
            ballots.by_family.remove(&family);
        }
    }

    /// Stretches a pause by a random part, so that rivals who collided do not collide again.
    pub(crate) fn jittered(pause: Duration) -> Duration {
        pause.mul_f64(rand::rng().random_range(0.5..1.5))
    }
}

/// Nobody can ask about it any more but to hear that it is gone.
fn is_over(ballot: &Ballot, now: BootInstant) -> bool {
    let tally = ballot.tally.lock();
    let last = tally.seats.iter().map(|seat| seat.until).max().unwrap_or(now);
    let grace = ballot.claim.ttl.as_duration();
    last + grace <= now && ballot.driving.try_lock().is_ok()
}
