//! Making the connections, and listening to them.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use palisade_core::{
    Clock, ConnectionState, Drift, ErrorKind, GoneReason, Profile, Result, Signal, SystemClock, Ttl,
};
use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::QuorumConfig;
use crate::ballot::{Phase, Standing};
use crate::core::Core;
use crate::engine::QuorumEngine;
use crate::error::{Failure, error, too_few};

/// How long a connection to one node may take to be made.
const OPENING: Duration = Duration::from_secs(5);
/// How long to pause before a node is tried again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl QuorumEngine {
    /// Connects to the nodes. A majority must be reached; the others are connected in the background.
    ///
    /// # Errors
    /// `Invalid` for a configuration that cannot work, `Unsupported` for a node that lacks what a vote
    /// needs, `Unavailable` if no majority can be reached, each with the reason.
    ///
    /// # Cancel safety
    /// Safe: what was connected by then ends with the future.
    pub async fn open(config: QuorumConfig) -> Result<Self> {
        Self::open_on(config, Arc::new(SystemClock)).await
    }

    /// As [`QuorumEngine::open`], on another clock: for tests. The nodes must follow the same one.
    ///
    /// # Errors
    /// As [`QuorumEngine::open`].
    pub async fn open_on(config: QuorumConfig, clock: Arc<dyn Clock>) -> Result<Self> {
        config.check()?;
        let drift = Drift { fixed: config.drift, per_mille: config.drift_per_mille };
        let profile = Profile { drift, ..crate::profile() };
        let core = Arc::new(Core::new(config, profile, clock, Handle::current()));
        // From here on dropping the future ends what was begun.
        let engine = Self { core };
        engine.core.connect().await?;
        Ok(engine)
    }
}

impl Core {
    async fn connect(self: &Arc<Self>) -> Result<()> {
        let mut opening: FuturesUnordered<_> = (0..self.nodes())
            .map(|node| async move { (node, tokio::time::timeout(OPENING, self.open_node(node)).await) })
            .collect();
        let mut reached = 0;
        loop {
            let next = opening.next();
            let opened = if reached >= self.majority {
                // As long as a node may take for anything else; then it is left to the background.
                tokio::time::timeout(self.node_timeout, next).await.ok().flatten()
            } else {
                next.await
            };
            match opened {
                None => break,
                Some((_, Ok(Ok(())))) => reached += 1,
                // What the node cannot do now it cannot do later either, and a bad setting does not mend itself: without a word
                // one would have fewer nodes than one believes.
                Some((node, Ok(Err(refused))))
                    if matches!(refused.kind(), ErrorKind::Unsupported | ErrorKind::Invalid) =>
                {
                    let message = format!("the node {}: {}", self.voters[node].node.name, refused.message());
                    return Err(error(refused.kind(), message));
                }
                Some((node, Ok(Err(error)))) => self.voters[node].not_connected(Failure::of(&error)),
                Some((node, Err(_))) => {
                    let message = format!("no connection within {OPENING:?}");
                    self.voters[node].not_connected(Failure::new(ErrorKind::Timeout, message));
                }
            }
        }
        drop(opening);
        if reached < self.majority {
            let troubles = self
                .voters
                .iter()
                .filter_map(|voter| voter.engine().err().map(|failure| (voter.node.name.clone(), failure)));
            return Err(too_few(reached, self.nodes(), &troubles.collect::<Vec<_>>()).unaffecting().error());
        }
        for voter in &self.voters {
            if let Err(failure) = voter.engine() {
                tracing::warn!(node = voter.node.name, reason = failure.message, "going on without a node");
            }
        }
        for node in 0..self.nodes() {
            let core = Arc::clone(self);
            self.spawn(async move { core.attend(node).await });
        }
        Ok(())
    }

    async fn open_node(&self, node: usize) -> Result<()> {
        let voter = &self.voters[node];
        let engine = (voter.node.open)().await?;
        check_node(&voter.node.name, engine.profile())?;
        voter.connected(engine);
        self.heard(node, true);
        Ok(())
    }

    /// Connects to a node if need be, and listens to it for as long as the engine lives.
    async fn attend(self: Arc<Self>, node: usize) {
        let mut pause = FIRST_PAUSE;
        let news = loop {
            if let Some(news) = self.voters[node].take_news() {
                break news;
            }
            // One that takes too long is tried again at once: it has had its pause.
            if let Ok(Err(error)) = tokio::time::timeout(OPENING, self.open_node(node)).await {
                tracing::debug!(node = self.voters[node].node.name, %error, "not connected");
                self.voters[node].not_connected(Failure::of(&error));
                self.clock.sleep_until(self.clock.now() + Self::jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        self.listen(node, news).await;
    }

    async fn listen(&self, node: usize, mut signals: Receiver<Signal>) {
        loop {
            match signals.recv().await {
                Ok(Signal::Gone { claim, reason }) => self.told_gone(node, claim, reason),
                Ok(Signal::Connection(ConnectionState::Suspended | ConnectionState::Lost)) => {
                    self.heard(node, false);
                }
                Ok(Signal::Connection(_)) => self.heard(node, true),
                // What was missed is found out by the next renewal.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// A node ended a claim by itself. Its client is told once no majority can hold it.
    fn told_gone(&self, node: usize, id: palisade_core::ClaimId, reason: GoneReason) {
        let Some(ballot) = self.ballot(id) else { return };
        let (gone, reason, held) = {
            let mut tally = ballot.tally.lock();
            let seat = &mut tally.seats[node];
            if seat.claim.id != id {
                return;
            }
            seat.standing = Standing::Gone(reason);
            let (gone, reason) = tally.gone();
            (gone, reason, tally.granted.is_some())
        };
        if held && gone >= self.majority && !ballot.is_gone() {
            ballot.tell(Phase::Gone(reason.clone()));
            self.signals.send(Signal::Gone { claim: ballot.claim.id, reason });
        } else if !held && matches!(reason, GoneReason::Evicted { .. }) {
            // An operator who ends a claim that waits means the whole of it.
            ballot.tell(Phase::Gone(reason));
            self.reach.notify_waiters();
        }
    }
}

fn check_node(name: &str, profile: &Profile) -> Result<()> {
    if profile.evict {
        return Ok(());
    }
    let message = format!(
        "the node {name} ({}) cannot end a single claim by force, so the quorum could not either",
        profile.engine
    );
    Err(error(ErrorKind::Unsupported, message))
}

impl QuorumConfig {
    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let count = self.nodes.len();
        let shortest = Ttl::MIN;
        let problem = if count < 3 {
            Some(format!(
                "{count} nodes are no quorum: with fewer than 3 the loss of one is the loss of the lock"
            ))
        } else if count.is_multiple_of(2) {
            Some(format!(
                "{count} nodes bear the loss of no more of them than {} do, and split the vote more often; use an odd number",
                count - 1
            ))
        } else if self.node_timeout.is_zero() || self.node_timeout >= self.longest_ttl / 2 {
            Some(format!(
                "the node timeout is {:?}; it must be above zero and far below the longest TTL, {:?}",
                self.node_timeout, self.longest_ttl
            ))
        } else if self.longest_ttl < shortest || self.longest_ttl > Ttl::MAX {
            Some(format!(
                "the longest TTL is {:?}; it lies between {shortest:?} and {:?}",
                self.longest_ttl,
                Ttl::MAX
            ))
        } else if self.drift_per_mille >= 1000 || self.drift >= self.longest_ttl {
            Some(format!(
                "a drift of {:?} and {} per mille leaves nothing of a TTL of {:?}",
                self.drift, self.drift_per_mille, self.longest_ttl
            ))
        } else if self.source.is_empty() {
            Some("the source has no name".to_owned())
        } else {
            self.same_name().map(|name| format!("the node {name} is named twice: it would have two votes"))
        };
        problem.map_or(Ok(()), |problem| Err(error(ErrorKind::Invalid, problem)))
    }

    fn same_name(&self) -> Option<&str> {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| *name)
    }
}
