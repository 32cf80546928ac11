//! What client and server say to each other: mirrors of the contract's types that can be sent.
//!
//! Whatever comes in is checked on its way to a type of the contract: names, TTLs and tokens from
//! the network are believed no more than those of a user.

mod claims;
mod failure;
mod hex;
mod outcomes;
mod registers;
mod views;

use serde::{Deserialize, Serialize};

pub(super) use self::claims::{Key, NewClaim};
pub(super) use self::failure::Failure;
pub(super) use self::hex::Hex;
pub(super) use self::outcomes::{
    Changing, Gone, HowChanged, HowClaimed, HowRenewed, HowWaited, HowWithdrawn, Stamp,
};
pub(super) use self::registers::{Conditions, HowRead, HowWritten, Raising};
pub(super) use self::views::{Paging, Resources, Selection, Told};

/// A request, with the number its answer carries.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) ask: Ask,
}

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// The first request of every connection.
    Hello {
        /// Made by the client; a new connection with the same one goes on with its claims.
        session: String,
        namespace: String,
        /// What the client believes to hold.
        held: Vec<Key>,
    },
    Claim(NewClaim),
    Wait(Key),
    Change(Key, Changing),
    Renew(Vec<Key>),
    Withdraw(Vec<Key>),
    Inspect(Selection, Paging),
    Evict {
        claim: Key,
        reason: String,
    },
    /// Opens a watch, which goes by the number of this request.
    Watch(Selection),
    /// The next event of a watch.
    Next {
        watch: u64,
    },
    Read(String, Option<Raising>),
    Write {
        register: String,
        /// `None` deletes.
        value: Option<Hex>,
        condition: Conditions,
        expires_in: Option<u64>,
    },
    /// Nobody waits for this request's answer any more. Has no answer itself.
    Forget {
        request: u64,
    },
    Ping,
}

/// What a server says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// The answer to a request.
    Answer { id: u64, answer: Result<Answer, Failure> },
    /// A held claim is no more.
    Gone { claim: String, reason: Gone },
}

/// The answers to the requests of [`Ask`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Welcome {
        source: String,
        /// Which of the claims that the client believes to hold it does not.
        gone: Vec<(String, Gone)>,
    },
    Claimed(HowClaimed),
    Waited(HowWaited),
    Changed(HowChanged),
    Renewed(Vec<HowRenewed>),
    Withdrawn(Vec<HowWithdrawn>),
    Inspected(Resources),
    Evicted(bool),
    Watching,
    Told(Told),
    WatchEnded,
    Read(HowRead),
    Written(HowWritten),
    Pong,
}
