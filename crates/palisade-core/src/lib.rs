//! The contract between Palisade's recipes and its engines.
//!
//! An [`Engine`] is the system that decides who holds what. It speaks in *claims* and *registers*;
//! recipes (mutex, semaphore, election …) live above it in the `palisade` crate and never know
//! which engine decides. The [`memory`] engine in this crate is the executable specification of
//! every clause written on the trait: where a doc comment leaves a doubt, it is right.
//!
//! | to … | start at |
//! |---|---|
//! | write an engine | [`Engine`], then run the suite of `palisade-testkit` over it |
//! | read what an engine promises | [`Profile`], [`Demand`] |
//! | understand fencing | [`Token`], [`FencingToken`], [`Fence`] |
//! | understand who is let in next | [`Occupancy`] |

mod claim;
mod clock;
mod engine;
mod error;
mod fence;
mod gather;
mod grant;
mod inspect;
mod layer;
mod look_again;
pub mod memory;
mod name;
mod nap;
mod percent;
mod profile;
mod queue;
mod register;
mod signal;
mod token;
mod ttl;
mod unreachable;
mod watch;

pub use claim::{Claim, ClaimId, Family, Mode, Owner};
pub use clock::{BootInstant, Clock, ManualClock, SystemClock};
pub use engine::Engine;
pub use error::{Effect, Error, ErrorKind, Result};
pub use fence::{Fence, FenceRefusal};
pub use gather::{Departure, Gather, Gathered, Traffic, UnderWay};
pub use grant::{
    Busy, Change, Changed, Claimed, Evicted, GoneReason, Grant, Place, Renewed, Waited, Withdrawn,
};
pub use inspect::{ClaimView, Inspection, Matching, Page, ResourceView, Scope, Selector};
pub use layer::Layer;
pub use look_again::look_again;
pub use name::{InvalidName, Name};
pub use nap::within;
pub use percent::percent_decode;
pub use profile::{
    Consistency, Demand, Drift, Durability, Fairness, FamilyScope, Liveness, Modes, Profile, Reach,
    TokenPromise, Trips, Wakeup,
};
pub use queue::{Admission, ModeChange, Occupancy};
pub use register::{
    Condition, Entry, MAX_VALUE_BYTES, Raise, Reading, Refusal, RefusalReason, StoredRegister, Version,
    Written,
};
pub use signal::{ConnectionState, Signal, Signals};
pub use token::{FencingToken, Source, Token, TokenKind};
pub use ttl::{InvalidTtl, Ttl};
pub use watch::{WatchEvent, WatchStream, Watched, watch_by_looking};
