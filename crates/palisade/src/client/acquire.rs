use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use palisade_core::{
    BootInstant, Claim, Claimed, Effect, Error, ErrorKind, Family, GoneReason, Grant, Mode, Name, Owner,
    Place, Result, Ttl, Waited,
};
use tracing::Instrument;

use super::{Client, Hold, Pending};
use crate::chance::Chance;
use crate::guard::Guard;

/// What a recipe wants to hold.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) resource: Name,
    pub(crate) family: Family,
    pub(crate) mode: Mode,
    pub(crate) value: Option<bytes::Bytes>,
    pub(crate) options: Options,
}

/// What all recipes can be told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) ttl: Option<Duration>,
    pub(crate) longest_hold: Option<Duration>,
    pub(crate) trace: Option<String>,
    pub(crate) may_wait_for_own_task: bool,
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Ask once.
    Once,
    /// Wait at most so long.
    Within(Duration),
    /// Wait for ever.
    Forever,
}

impl Client {
    /// How often to ask an engine that can neither queue a claim nor say when to come back.
    const LOOK_AGAIN: Duration = Duration::from_millis(100);

    /// How long a wait that is over may take to leave the queue.
    const LEAVE_WITHIN: Duration = Duration::from_secs(1);

    /// Takes what `ask` names; `None` if it could not be had within `patience`.
    ///
    /// Dropping the future at any point leaves nothing behind.
    pub(crate) async fn acquire(&self, ask: &Ask, patience: Patience) -> Result<Option<Guard>> {
        let span = tracing::debug_span!("acquire", resource = %ask.resource, mode = %ask.mode);
        self.acquire_inner(ask, patience).instrument(span).await.map_err(|error| error.about(&ask.resource))
    }

    /// As [`Client::acquire`] without a limit.
    pub(crate) async fn acquire_forever(&self, ask: &Ask) -> Result<Guard> {
        loop {
            if let Some(guard) = self.acquire(ask, Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    async fn acquire_inner(&self, ask: &Ask, patience: Patience) -> Result<Option<Guard>> {
        let limit = match patience {
            Patience::Within(limit) => self.clock().now() + limit,
            Patience::Once | Patience::Forever => BootInstant::FAR_FUTURE,
        };
        // A grant can come too late to be of use, and a place in a queue can be lost while this
        // process is paused: then a new claim starts over.
        for attempt in 0.. {
            if attempt > 0 && (matches!(patience, Patience::Once) || self.clock().now() >= limit) {
                break;
            }
            let claim = Arc::new(self.claim_for(ask, patience)?);
            let pending = Pending::new(self.clone(), Arc::clone(&claim));
            let granted = match self.ask(&claim, patience, limit).await? {
                Asked::Granted(grant) => Some(grant),
                Asked::Busy { look_again_in } => {
                    pending.disarm();
                    if matches!(patience, Patience::Once) || !self.look_again(look_again_in, limit).await {
                        return Ok(None);
                    }
                    continue;
                }
                Asked::OutOfTime => return self.give_up(pending).await,
                Asked::Queued(place) => {
                    self.refuse_own_wait(ask)?;
                    self.keeper().queue(&claim, place.valid_until)?;
                    match self.wait(&claim, limit).await? {
                        Asked::Granted(grant) => Some(grant),
                        Asked::OutOfTime => return self.give_up(pending).await,
                        Asked::Busy { .. } | Asked::Queued(_) => None,
                    }
                }
            };
            if let Some(grant) = granted
                && let Some(guard) = self.guard(ask, pending, &grant)?
            {
                return Ok(Some(guard));
            }
        }
        Ok(None)
    }

    fn claim_for(&self, ask: &Ask, patience: Patience) -> Result<Claim> {
        let ttl = ask.options.ttl.map(Ttl::new).transpose()?.unwrap_or(self.0.ttl);
        let owner = match &ask.options.trace {
            None => Arc::clone(&self.0.owner),
            Some(trace) => Arc::new(Owner { trace: Some(trace.clone()), ..(*self.0.owner).clone() }),
        };
        let mut claim = Claim::new(ask.resource.clone(), ask.mode, ttl, owner).family(ask.family);
        claim.id = self.chance().claim_id();
        claim.value.clone_from(&ask.value);
        claim.will_wait = !matches!(patience, Patience::Once);
        Ok(claim)
    }

    /// Asks the engine, again if it could not be reached: the claim's id makes that safe.
    async fn ask(&self, claim: &Arc<Claim>, patience: Patience, limit: BootInstant) -> Result<Asked> {
        let mut backoff = Backoff::new(self.clock().now() + claim.ttl.as_duration());
        // If one try may have taken effect, so may the whole.
        let mut effect = Effect::None;
        loop {
            let Some(answer) = self.before(limit, self.engine().claim(claim)).await else {
                return Ok(Asked::OutOfTime);
            };
            match answer {
                Ok(Claimed::Granted(grant)) => return Ok(Asked::Granted(grant)),
                Ok(Claimed::Queued(place)) => return Ok(Asked::Queued(place)),
                Ok(Claimed::Busy(busy)) => return Ok(Asked::Busy { look_again_in: busy.look_again_in }),
                Err(mut error) => {
                    if effect == Effect::Unknown {
                        error = error.with_unknown_effect();
                    }
                    effect = error.effect();
                    // Who asks once is told at once, unless only asking again tells what became of it.
                    let once = matches!(patience, Patience::Once) && effect == Effect::None;
                    if !error.is_transient() || once {
                        return Err(error);
                    }
                    if !self.pause(&mut backoff, limit, error).await? {
                        return Ok(Asked::OutOfTime);
                    }
                }
            }
        }
    }

    /// Waits for the grant; [`Asked::Busy`] means that the place was lost and must be asked for anew.
    async fn wait(&self, claim: &Arc<Claim>, limit: BootInstant) -> Result<Asked> {
        loop {
            let Some(answer) = self.before(limit, self.engine().wait(claim)).await else {
                return Ok(Asked::OutOfTime);
            };
            match answer {
                Ok(Waited::Granted(grant)) => return Ok(Asked::Granted(grant)),
                Ok(Waited::Gone(GoneReason::Evicted { reason })) => {
                    return Err(Error::new(
                        ErrorKind::Lost,
                        format!("the claim was evicted while it waited: {reason}"),
                    ));
                }
                Ok(Waited::Gone(_)) => return Ok(Asked::Busy { look_again_in: None }),
                Err(error) if error.is_transient() => {
                    // The place stands for as long as renewals reach the engine, or one TTL more.
                    let stands_until = self.keeper().deadline(claim.id).unwrap_or(self.clock().now());
                    let mut backoff = Backoff::new(stands_until);
                    if !self.pause(&mut backoff, limit, error).await? {
                        return Ok(Asked::OutOfTime);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A guard for `grant`, unless it came too late to be of use; then it is given back.
    fn guard(&self, ask: &Ask, pending: Pending, grant: &Grant) -> Result<Option<Guard>> {
        let claim = Arc::clone(pending.claim());
        let now = self.clock().now();
        let margin = self.profile().drift.margin(claim.ttl.as_duration());
        let deadline = match grant.valid_until {
            BootInstant::FAR_FUTURE => BootInstant::FAR_FUTURE,
            until => until.saturating_sub(margin),
        };
        if deadline <= now {
            tracing::debug!(resource = %claim.resource, claim = %claim.id, "granted too late");
            return Ok(None);
        }
        let ends = ask.options.longest_hold.map_or(BootInstant::FAR_FUTURE, |longest| now + longest);
        let hold = Arc::new(Hold::new(claim, grant.token, grant.slot, deadline, ends));
        self.keeper().hold(Arc::clone(&hold))?;
        Ok(Some(Guard { hold, pending }))
    }

    /// Leaves the queue before saying so, so that "not obtained" is true at once. An engine that cannot
    /// be reached is another reason than that somebody holds; the withdrawal goes on in the background.
    async fn give_up(&self, pending: Pending) -> Result<Option<Guard>> {
        let limit = self.clock().now() + Self::LEAVE_WITHIN;
        match self.before(limit, pending.withdraw()).await {
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) if error.is_transient() => Err(self.unanswered().because(error)),
            Some(Err(error)) => Err(error),
            None => Err(self.unanswered()),
        }
    }

    fn unanswered(&self) -> Error {
        let message = "not obtained in time, and the engine does not answer";
        Error::new(ErrorKind::Timeout, message).with_unknown_effect().on_engine(self.profile().engine)
    }

    /// A task that waits for what it holds itself would wait for ever.
    fn refuse_own_wait(&self, ask: &Ask) -> Result<()> {
        let own = self.keeper().held_by_this_task(&ask.resource);
        let hopeless = match ask.mode {
            Mode::Exclusive | Mode::Shared => own > 0,
            Mode::Slot { of } => own >= of as usize,
        };
        if hopeless && !ask.options.may_wait_for_own_task {
            return Err(Error::new(
                ErrorKind::WouldDeadlock,
                "this task holds the resource already and would wait for itself; release its guard first, or call `may_wait_for_own_task` if another part of the task will",
            ));
        }
        Ok(())
    }

    /// `None` if `limit` comes first.
    async fn before<T>(&self, limit: BootInstant, work: impl Future<Output = T>) -> Option<T> {
        if limit == BootInstant::FAR_FUTURE {
            return Some(work.await);
        }
        match select(std::pin::pin!(work), self.clock().sleep_until(limit)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    /// Waits on an engine that cannot queue; `false` if the limit comes first.
    async fn look_again(&self, after: Option<Duration>, limit: BootInstant) -> bool {
        let jitter = 0.8 + 0.4 * self.chance().part();
        let again = self.clock().now() + after.unwrap_or(Self::LOOK_AGAIN).mul_f64(jitter);
        self.clock().sleep_until(again.min(limit)).await;
        again < limit
    }

    /// Waits before the next try; `false` if the limit comes first.
    async fn pause(&self, backoff: &mut Backoff, limit: BootInstant, error: Error) -> Result<bool> {
        let again = self.clock().now() + backoff.next(self.chance());
        if again >= backoff.give_up {
            return Err(error);
        }
        self.clock().sleep_until(again.min(limit)).await;
        Ok(again < limit)
    }
}

/// How far an attempt came.
enum Asked {
    Granted(Grant),
    Queued(Place),
    /// Turned away, or thrown out of the queue.
    Busy {
        look_again_in: Option<Duration>,
    },
    OutOfTime,
}

/// Growing, jittered pauses between tries, and when to stop trying.
struct Backoff {
    step: Duration,
    give_up: BootInstant,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    fn new(give_up: BootInstant) -> Self {
        Self { step: Self::FIRST, give_up }
    }

    fn next(&mut self, chance: &dyn Chance) -> Duration {
        let pause = self.step.mul_f64(0.5 + 0.5 * chance.part());
        self.step = (self.step * 2).min(Self::LONGEST);
        pause
    }
}
