//! Session locks: the connection is the hold.
//!
//! The server's own locks decide, who waits stands in the server's queue, and what a connection holds ends with it. What is
//! different from server to server is a seat (`postgres/seat.rs`, `mysql/seat.rs`), behind `dialect.rs` and `seat.rs`; here is no SQL.
//!
//! | what | file |
//! |---|---|
//! | how a name becomes a number | `keys.rs` |
//! | what a server must be able to do | `dialect.rs`, `seat.rs` |
//! | which connection a claim is on | `seats.rs` |
//! | what this client knows of its claims | `book.rs` |
//! | how a claim is made, waits and leaves | `claim.rs`, `leave.rs`, `verbs.rs` |
//! | what keeps connections alive and ends what nobody renews | `keeper.rs` |
//! | what others are shown | `notes.rs`, `inspect.rs` |

mod book;
mod claim;
mod dialect;
mod engine;
mod inspect;
mod keeper;
mod keys;
mod leave;
mod notes;
mod seat;
mod seats;
mod verbs;

#[cfg(feature = "mysql")]
pub use self::dialect::mysql_profile;
#[cfg(feature = "postgres")]
pub use self::dialect::profile;
pub use self::engine::AdvisoryEngine;
pub(crate) use self::inspect::Seen;
#[cfg(feature = "mysql")]
pub(crate) use self::keys::{key_of, mark_of};
pub(crate) use self::notes::Note;
