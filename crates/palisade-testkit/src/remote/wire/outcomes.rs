use std::time::Duration;

use palisade_core::{
    BootInstant, Busy, Change, Changed, ClaimView, Claimed, GoneReason, Grant, Place, Renewed, Result, Token,
    Ttl, Waited, Withdrawn,
};
use serde::{Deserialize, Serialize};

use super::Hex;
use super::claims::{How, invalid, nanos};
use super::views::View;

/// The moment to which a validity refers that travels as *so much longer*: at the server when it
/// received the request, at the client just before it sent it.
///
/// Why that is sound: let the server honour a claim until `E` on its clock, and receive the request
/// at `R`. It answers `left = E − R`. The client sent at `S`, and in real time `S` was not later
/// than `R`; so `S + left` is not later than `E`, however long request and answer were under way,
/// and whatever the two clocks show. That they run at the same rate is what the profile's drift
/// margin is for. `left` is cut to one TTL, because handling takes time too: the contract counts
/// from before the request was sent.
///
/// A *wait* is answered long after it was asked. `S + left` would still be right by clocks that run
/// alike, but the margin covers their drift over one TTL, not over hours in a queue. So the server
/// says only "look again" then, and the client asks anew, which is answered at once.
#[derive(Debug, Clone, Copy)]
pub(in crate::remote) struct Stamp(pub(in crate::remote) BootInstant);

impl Stamp {
    fn left(self, until: BootInstant) -> u64 {
        nanos(until.saturating_since(self.0))
    }

    fn until(self, left: u64, ttl: Ttl) -> BootInstant {
        self.0 + Duration::from_nanos(left).min(ttl.as_duration())
    }
}

/// A [`Grant`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Granted {
    token: u64,
    slot: Option<u32>,
    left: u64,
}

impl Granted {
    fn new(grant: &Grant, received: Stamp) -> Self {
        Self { token: grant.token.get(), slot: grant.slot, left: received.left(grant.valid_until) }
    }

    fn grant(self, ttl: Ttl, sent: Stamp) -> Result<Grant> {
        let token = Token::new(self.token).ok_or_else(|| invalid("a token is out of range"))?;
        Ok(Grant { token, slot: self.slot, valid_until: sent.until(self.left, ttl) })
    }
}

/// A [`Claimed`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum HowClaimed {
    Granted(Granted),
    Queued { ahead: u32, left: u64 },
    Busy { holders: Vec<View>, look_again_in: Option<u64> },
}

impl HowClaimed {
    pub(in crate::remote) fn new(claimed: &Claimed, received: Stamp) -> Self {
        match claimed {
            Claimed::Granted(grant) => Self::Granted(Granted::new(grant, received)),
            Claimed::Queued(place) => {
                Self::Queued { ahead: place.ahead, left: received.left(place.valid_until) }
            }
            Claimed::Busy(busy) => Self::Busy {
                holders: busy.holders.iter().map(View::from).collect(),
                look_again_in: busy.look_again_in.map(nanos),
            },
        }
    }

    pub(in crate::remote) fn claimed(self, ttl: Ttl, sent: Stamp) -> Result<Claimed> {
        Ok(match self {
            Self::Granted(granted) => Claimed::Granted(granted.grant(ttl, sent)?),
            Self::Queued { ahead, left } => {
                Claimed::Queued(Place { ahead, valid_until: sent.until(left, ttl) })
            }
            Self::Busy { holders, look_again_in } => Claimed::Busy(Busy {
                holders: holders.into_iter().map(ClaimView::try_from).collect::<Result<_>>()?,
                look_again_in: look_again_in.map(Duration::from_nanos),
            }),
        })
    }
}

/// A [`GoneReason`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::remote) enum Gone {
    Expired,
    Evicted { reason: String },
    SessionLost,
    Withdrawn,
    Unknown,
}

impl From<GoneReason> for Gone {
    fn from(reason: GoneReason) -> Self {
        match reason {
            GoneReason::Expired => Self::Expired,
            GoneReason::Evicted { reason } => Self::Evicted { reason },
            GoneReason::SessionLost => Self::SessionLost,
            GoneReason::Withdrawn => Self::Withdrawn,
            _ => Self::Unknown,
        }
    }
}

impl From<Gone> for GoneReason {
    fn from(reason: Gone) -> Self {
        match reason {
            Gone::Expired => Self::Expired,
            Gone::Evicted { reason } => Self::Evicted { reason },
            Gone::SessionLost => Self::SessionLost,
            Gone::Withdrawn => Self::Withdrawn,
            Gone::Unknown => Self::Unknown,
        }
    }
}

/// A [`Waited`], or that it is time to ask again.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum HowWaited {
    Granted(Granted),
    Gone(Gone),
    /// It took a while until there was something to see; see [`Stamp`].
    LookAgain,
}

impl HowWaited {
    pub(in crate::remote) fn new(waited: Waited, received: Stamp) -> Self {
        match waited {
            Waited::Granted(grant) => Self::Granted(Granted::new(&grant, received)),
            Waited::Gone(reason) => Self::Gone(reason.into()),
        }
    }

    /// `None` if it is to be asked again.
    pub(in crate::remote) fn waited(self, ttl: Ttl, sent: Stamp) -> Result<Option<Waited>> {
        Ok(match self {
            Self::Granted(granted) => Some(Waited::Granted(granted.grant(ttl, sent)?)),
            Self::Gone(reason) => Some(Waited::Gone(reason.into())),
            Self::LookAgain => None,
        })
    }
}

/// A [`Change`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Changing(Changes);

#[derive(Debug, Serialize, Deserialize)]
enum Changes {
    Mode(How),
    Value(Option<Hex>),
}

impl From<&Change> for Changing {
    fn from(change: &Change) -> Self {
        Self(match change {
            Change::Mode(mode) => Changes::Mode((*mode).into()),
            Change::Value(value) => Changes::Value(value.clone().map(Hex)),
        })
    }
}

impl From<Changing> for Change {
    fn from(Changing(change): Changing) -> Self {
        match change {
            Changes::Mode(mode) => Self::Mode(mode.into()),
            Changes::Value(value) => Self::Value(value.map(|Hex(value)| value)),
        }
    }
}

/// A [`Changed`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum HowChanged {
    Done,
    Refused(String),
    Gone(Gone),
}

impl From<Changed> for HowChanged {
    fn from(changed: Changed) -> Self {
        match changed {
            Changed::Done => Self::Done,
            Changed::Refused(why) => Self::Refused(why.into_owned()),
            Changed::Gone(reason) => Self::Gone(reason.into()),
        }
    }
}

/// A [`Renewed`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum HowRenewed {
    Valid { left: u64 },
    Gone(Gone),
}

impl HowRenewed {
    pub(in crate::remote) fn new(renewed: Renewed, received: Stamp) -> Self {
        match renewed {
            Renewed::Valid { until } => Self::Valid { left: received.left(until) },
            Renewed::Gone(reason) => Self::Gone(reason.into()),
        }
    }

    pub(in crate::remote) fn renewed(self, ttl: Ttl, sent: Stamp) -> Renewed {
        match self {
            Self::Valid { left } => Renewed::Valid { until: sent.until(left, ttl) },
            Self::Gone(reason) => Renewed::Gone(reason.into()),
        }
    }
}

/// A [`Withdrawn`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::remote) enum HowWithdrawn {
    Released,
    LeftQueue,
    AlreadyGone,
}

impl From<Withdrawn> for HowWithdrawn {
    fn from(withdrawn: Withdrawn) -> Self {
        match withdrawn {
            Withdrawn::Released => Self::Released,
            Withdrawn::LeftQueue => Self::LeftQueue,
            Withdrawn::AlreadyGone => Self::AlreadyGone,
        }
    }
}

impl From<HowWithdrawn> for Withdrawn {
    fn from(withdrawn: HowWithdrawn) -> Self {
        match withdrawn {
            HowWithdrawn::Released => Self::Released,
            HowWithdrawn::LeftQueue => Self::LeftQueue,
            HowWithdrawn::AlreadyGone => Self::AlreadyGone,
        }
    }
}
