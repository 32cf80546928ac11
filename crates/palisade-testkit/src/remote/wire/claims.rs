use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Claim, ClaimId, Error, ErrorKind, Family, Mode, Name, Owner, Result, Token, Ttl};
use serde::{Deserialize, Serialize};

use super::Hex;

/// Which claim is meant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::remote) struct Key {
    pub(in crate::remote) resource: String,
    pub(in crate::remote) id: String,
}

impl Key {
    pub(in crate::remote) fn new(resource: &Name, id: ClaimId) -> Self {
        Self { resource: resource.to_string(), id: id.to_string() }
    }

    pub(in crate::remote) fn of(claim: &Claim) -> Self {
        Self::new(&claim.resource, claim.id)
    }

    pub(in crate::remote) fn parts(&self) -> Result<(Name, ClaimId)> {
        let id = self.id.parse().map_err(|_| invalid("a claim's id is a UUID"))?;
        Ok((Name::from_stored(&self.resource)?, id))
    }

    /// A claim that stands for this one in the verbs that look at its resource and id only.
    pub(in crate::remote) fn claim(&self) -> Result<Arc<Claim>> {
        let (resource, id) = self.parts()?;
        let owner = Owner { client: String::new(), host: String::new(), pid: 0, label: None, trace: None };
        let mut claim = Claim::new(resource, Mode::Exclusive, Ttl::default(), Arc::new(owner));
        claim.id = id;
        Ok(Arc::new(claim))
    }
}

pub(super) fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// A whole claim.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct NewClaim {
    key: Key,
    family: Family,
    mode: How,
    ttl: u64,
    owner: Owner,
    value: Option<Hex>,
    will_wait: bool,
    token_floor: Option<u64>,
}

impl From<&Claim> for NewClaim {
    fn from(claim: &Claim) -> Self {
        Self {
            key: Key::of(claim),
            family: claim.family,
            mode: claim.mode.into(),
            ttl: nanos(claim.ttl.as_duration()),
            owner: (*claim.owner).clone(),
            value: claim.value.clone().map(Hex),
            will_wait: claim.will_wait,
            token_floor: claim.token_floor.map(Token::get),
        }
    }
}

impl NewClaim {
    /// A floor beyond this would use up all tokens there are.
    const HIGHEST_FLOOR: u64 = Token::MAX / 2;

    pub(in crate::remote) fn claim(self) -> Result<Arc<Claim>> {
        let (resource, id) = self.key.parts()?;
        let ttl = Ttl::new(Duration::from_nanos(self.ttl))?;
        let mut claim = Claim::new(resource, self.mode.into(), ttl, Arc::new(self.owner)).family(self.family);
        claim.id = id;
        claim.value = self.value.map(|Hex(value)| value);
        claim.will_wait = self.will_wait;
        claim.token_floor = match self.token_floor {
            Some(floor) if floor > Self::HIGHEST_FLOOR => return Err(invalid("the token floor is too high")),
            floor => floor.and_then(Token::new),
        };
        Ok(Arc::new(claim))
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A [`Mode`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum How {
    Exclusive,
    Shared,
    Slot { of: u32 },
}

impl From<Mode> for How {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Shared => Self::Shared,
            Mode::Slot { of } => Self::Slot { of },
        }
    }
}

impl From<How> for Mode {
    fn from(how: How) -> Self {
        match how {
            How::Exclusive => Self::Exclusive,
            How::Shared => Self::Shared,
            How::Slot { of } => Self::Slot { of },
        }
    }
}
