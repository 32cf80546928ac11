use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Name, Token, Ttl};

/// One request for a resource.
///
/// The client makes the id, so that every verb can be repeated: a lost reply is answered by
/// asking again with the same claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// Made by the client, unique for ever.
    pub id: ClaimId,
    /// What is asked for.
    pub resource: Name,
    /// Which kind of recipe asks. Engines use it for their layout only, never to decide.
    pub family: Family,
    /// How the resource is to be held.
    pub mode: Mode,
    /// How long the claim stands, held or queued, without a renewal.
    pub ttl: Ttl,
    /// Who asks.
    pub owner: Arc<Owner>,
    /// What the holder publishes, such as a candidate's address.
    pub value: Option<Bytes>,
    /// Whether to queue if the resource is taken. A claim that will not wait leaves nothing behind.
    pub will_wait: bool,
    /// The grant's token must be greater than this: how a quorum writes its token back.
    pub token_floor: Option<Token>,
}

impl Claim {
    /// A claim with a fresh id that will wait.
    pub fn new(resource: Name, mode: Mode, ttl: Ttl, owner: Arc<Owner>) -> Self {
        Self {
            id: ClaimId::random(),
            resource,
            family: mode.usual_family(),
            mode,
            ttl,
            owner,
            value: None,
            will_wait: true,
            token_floor: None,
        }
    }

    /// The same claim, but asked for once only.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.will_wait = false;
        self
    }

    /// The same claim on behalf of another family of recipes.
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// The same claim with something to publish.
    #[must_use]
    pub fn value(mut self, value: impl Into<Bytes>) -> Self {
        self.value = Some(value.into());
        self
    }
}

/// The identity of one claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// Makes a new one from 122 random bits.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Rebuilds an id that an engine stored.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The id as an engine stores it.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.simple(), f)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClaimId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

/// How a resource is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other shared claims.
    Shared,
    /// One numbered slot. The number of slots is in force while any claim of the resource lives;
    /// a claim that asks for another number meanwhile is refused.
    Slot {
        /// How many slots the resource has, at least 1.
        of: u32,
    },
}

impl Mode {
    /// The family that asks in this mode unless a recipe says otherwise.
    pub const fn usual_family(self) -> Family {
        match self {
            Self::Exclusive => Family::Mutex,
            Self::Shared => Family::Rw,
            Self::Slot { .. } => Family::Permits,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Slot { .. } => f.write_str("slot"),
        }
    }
}

/// Which kind of recipe asks; decides the layout of keys where other clients must see the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// A mutex.
    Mutex,
    /// A read-write lock.
    Rw,
    /// A semaphore.
    Permits,
    /// A leader election.
    Election,
}

/// Who claims; shown to those who wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The client: one engine connection of one process.
    pub client: String,
    /// The host's name.
    pub host: String,
    /// The process on that host.
    pub pid: u32,
    /// What the program calls itself, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The trace in which the claim was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Owner {
    /// This process, under a client name of its own.
    pub fn this_process() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let client = Uuid::new_v4().simple().to_string();
        Self { client: client[..12].to_owned(), host, pid: std::process::id(), label: None, trace: None }
    }
}
