use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Error, ErrorKind, FencingToken, GoneReason, Name, Result,
    Token, Withdrawn,
};

use crate::client::{Hold, Pending};

/// What every guard can do; [`crate::MutexGuard`] and its like add to it.
///
/// A guard is valid from the grant until it is released, lost, or past its deadline, whichever
/// comes first. It is renewed by itself while it lives. Dropping it releases in the background:
/// that never blocks and is not immediate; [`Guard::release`] is. If the runtime has ended, the
/// claim is free within one TTL.
///
/// All methods take `&self`, so an `Arc` of a guard can be shared between tasks.
#[must_use = "if unused the claim is released at once"]
pub struct Guard {
    pub(crate) hold: Arc<Hold>,
    /// Withdraws the claim unless told that it was withdrawn already.
    pub(crate) pending: Pending,
}

impl Guard {
    /// The fencing token of this grant: rises for ever per resource.
    ///
    /// Send it along with every write that the lock protects, and let the receiver refuse smaller
    /// ones than it has seen. [`crate::Register::fenced`] does both.
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// The token with its mode, slot and source, as fences judge it.
    pub fn fencing_token(&self) -> FencingToken {
        let source = self.pending.client().engine().source();
        FencingToken::of_grant(self.hold.token, self.hold.claim().mode, self.hold.slot, source)
    }

    /// What is held.
    pub fn resource(&self) -> Name {
        self.hold.claim().resource.clone()
    }

    /// The claim's id, as others see it.
    pub fn claim_id(&self) -> ClaimId {
        self.hold.claim().id
    }

    /// The TTL under which it is held: how long the engine honours it without a renewal.
    pub fn ttl(&self) -> Duration {
        self.hold.claim().ttl.as_duration()
    }

    /// Until when this guard is valid on the local boot-time clock, unless it is renewed before;
    /// `None` on engines whose claims last as long as a connection.
    pub fn deadline(&self) -> Option<BootInstant> {
        Some(self.hold.deadline()).filter(|at| *at != BootInstant::FAR_FUTURE)
    }

    /// How long this guard is still valid for sure; zero once it is lost.
    ///
    /// Check it before an effect that nothing fences.
    pub fn remaining(&self) -> Duration {
        if self.hold.lost_reason().is_some() {
            return Duration::ZERO;
        }
        self.hold.deadline().saturating_since(self.pending.client().clock().now())
    }

    /// Whether the claim is held for sure at this moment. Reads the clock, asks nobody.
    ///
    /// Once false, it stays false.
    pub fn is_valid(&self) -> bool {
        self.hold.lost_reason().is_none() && self.hold.is_ahead_of(self.pending.client().clock().now())
    }

    /// Why the last renewal failed, if it did: what to tell people when the claim is lost for it.
    pub fn trouble(&self) -> Option<String> {
        self.hold.trouble().map(|trouble| trouble.to_string())
    }

    /// For how long the answer to a renewal has not come, if it is late, and on which engine: what to tell people when the
    /// claim is lost for it.
    pub fn unanswered(&self) -> Option<String> {
        let client = self.pending.client();
        let waited = client.clock().now().saturating_since(self.hold.unanswered_since()?);
        let waited = humantime::format_duration(Duration::from_millis(waited.as_millis() as u64));
        Some(format!("no answer to a renewal for {waited} ({})", client.profile().engine))
    }

    /// Completes when the claim is lost, with the reason, before the engine can give it away.
    ///
    /// Never completes for a guard that is released in time.
    ///
    /// # Cancel safety
    /// Safe; the future borrows nothing and may be awaited at several places.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let hold = Arc::clone(&self.hold);
        async move { hold.wait_lost().await }
    }

    /// Lets the task that took this guard wait for the same resource again: for a guard that was
    /// handed to another task.
    pub fn detach_from_task(&self) {
        self.hold.forget_task();
    }

    /// Gives the claim back and says whether it was still held.
    ///
    /// # Errors
    /// If the engine could not be reached; the release goes on in the background, and one TTL
    /// bounds it.
    ///
    /// # Cancel safety
    /// Safe: once called, the claim is given back even if the future is dropped.
    pub async fn release(self) -> Result<Released> {
        Ok(match self.pending.withdraw().await? {
            Withdrawn::Released => Released::InTime,
            Withdrawn::LeftQueue | Withdrawn::AlreadyGone => Released::TooLate,
        })
    }

    pub(crate) async fn change(&self, change: Change) -> Result<()> {
        let claim = self.hold.claim();
        match self.pending.client().engine().change(&claim, &change).await? {
            Changed::Done => {
                self.hold.set_claim(after(&claim, change));
                Ok(())
            }
            Changed::Refused(why) => Err(Error::new(ErrorKind::WouldDeadlock, why).about(&claim.resource)),
            Changed::Gone(reason) => {
                let reason = LostReason::from(reason);
                self.hold.lose(reason.clone());
                Err(Error::new(ErrorKind::Lost, format!("the claim is no longer held: {reason}"))
                    .about(&claim.resource))
            }
        }
    }
}

fn after(claim: &Claim, change: Change) -> Arc<Claim> {
    let mut changed = claim.clone();
    match change {
        Change::Mode(mode) => changed.mode = mode,
        Change::Value(value) => changed.value = value,
    }
    Arc::new(changed)
}

/// So that whoever checks tokens takes the guard itself.
impl From<&Guard> for FencingToken {
    fn from(guard: &Guard) -> Self {
        guard.fencing_token()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("resource", &self.resource())
            .field("token", &self.token())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// Why a claim was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// It could not be renewed in time, although the engine answered.
    Expired,
    /// An operator ended it.
    Evicted {
        /// What the operator wrote.
        reason: String,
    },
    /// The engine could not be reached for a whole TTL.
    EngineUnreachable,
    /// The session behind it ended.
    SessionLost,
    /// The engine does not know it any more, although its time was not up.
    Forgotten,
    /// This process, or the machine, stood still past the deadline.
    PausedTooLong,
    /// The longest hold that was asked for is over.
    HeldTooLong,
    /// The client was closed.
    Closed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it was not renewed in time"),
            Self::Evicted { reason } => write!(f, "it was evicted: {reason}"),
            Self::EngineUnreachable => f.write_str("the engine could not be reached"),
            Self::SessionLost => f.write_str("its session ended"),
            Self::Forgotten => f.write_str(
                "the engine does not know it any more: somebody deleted it, or the engine lost its data",
            ),
            Self::PausedTooLong => f.write_str("this process stood still for too long"),
            Self::HeldTooLong => f.write_str("its longest hold is over"),
            Self::Closed => f.write_str("its client was closed"),
        }
    }
}

impl From<GoneReason> for LostReason {
    fn from(reason: GoneReason) -> Self {
        match reason {
            GoneReason::Evicted { reason } => Self::Evicted { reason },
            GoneReason::SessionLost => Self::SessionLost,
            GoneReason::Unknown => Self::Forgotten,
            _ => Self::Expired,
        }
    }
}

/// Whether a release found the claim still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It was held up to now.
    InTime,
    /// It had expired or was evicted before. Nothing of its successor was touched.
    TooLate,
}
