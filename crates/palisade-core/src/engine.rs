use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;

use crate::{
    BootInstant, Change, Changed, Claim, ClaimId, Claimed, Condition, Evicted, Inspection, Name, Page,
    Profile, Raise, Reading, Renewed, Result, Selector, Signals, Source, Waited, WatchStream, Withdrawn,
    Written,
};

/// The system that decides who holds what: eight verbs over claims, three over registers.
///
/// One value is one connection of one client, inside one namespace. Each verb has one deciding
/// native step (one script, one transaction, one conditional update). All verbs are idempotent by
/// the claim's id, so that a caller in doubt asks again.
///
/// The *Behaviour* lists are the contract. The suite in `palisade-testkit` quotes them; the
/// [memory engine](crate::memory) is their executable form.
#[async_trait]
pub trait Engine: Send + Sync + fmt::Debug + 'static {
    /// What this engine promises.
    ///
    /// # Behaviour
    /// - Never changes while the connection lives.
    fn profile(&self) -> &Profile;

    /// Who counts its tokens.
    ///
    /// # Behaviour
    /// - Two connections whose tokens compare say the same source; any others do not.
    fn source(&self) -> Source;

    /// What the engine tells its client unasked: held claims that are gone, and how the connection
    /// stands.
    ///
    /// # Behaviour
    /// - A held claim that is evicted, or whose session ends, is told here without being asked for.
    /// - A claim that its own client withdrew is not.
    fn signals(&self) -> &Signals;

    /// The descriptor that keeps the session alive, on engines that notice death through the kernel.
    ///
    /// # Behaviour
    /// - While any process holds a copy, claims do not pass on because their own process died; their
    ///   TTL still bounds them. A program that starts a command under a lock lets the command inherit
    ///   it, and sees to it that the command is gone by the deadline.
    fn lifeline(&self) -> Option<BorrowedFd<'_>>;

    /// The latest moment at which the server behind this connection may have forgotten what it had
    /// granted, on this machine's clock: its start, unless it kept its data. `None` if it never does.
    ///
    /// It is known before the first call over a new connection is answered. So whoever looks *after*
    /// an answer knows whether the server that gave it remembers; a quorum discounts the vote of one
    /// that may not.
    fn forgot_at(&self) -> Option<BootInstant> {
        None
    }

    /// Whether every call but `wait` ends by itself, in about the call timeout or twice that if it had to wait for
    /// a connection first, also while the server hangs.
    /// Otherwise the client bounds each call, which costs a timer.
    fn bounds_calls(&self) -> bool {
        false
    }

    /// Asks for a resource.
    ///
    /// # Behaviour
    /// - A free resource is granted at once.
    /// - An exclusive claim excludes every other; shared claims exclude exclusive ones and slots;
    ///   at most N slots are held at once, each number once.
    /// - A claim that will wait is queued behind all who came before, also behind one that could
    ///   not come in although this one could: nobody is overtaken (fairness *Fifo*).
    /// - A claim that will not wait and cannot come in is *busy*, says who holds, and leaves
    ///   nothing behind.
    /// - Asked again with the same id, it gives the same answer: the same token, or the same place.
    /// - The token is greater than that of every grant of this resource that returned before the
    ///   claim was asked for, whatever crashed in between. Of two grants that exclude each other,
    ///   the later one has the greater token, also where the later one asked first.
    /// - Asked again with a token floor that is not below its token, a grant gets a greater token.
    /// - `valid_until` counts from before the request was sent.
    /// - Another number of slots than the one in force is a conflict that names both.
    /// - Two names never share a claim; one namespace never sees another.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the claim in doubt; the caller withdraws it. A withdrawal that
    /// was asked for later wins, also over a claim that is still on its way.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) for a claim that was withdrawn before it arrived.
    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed>;

    /// Asks for several resources at once, in fewer calls where an engine can do so.
    ///
    /// # Behaviour
    /// - Each gets the answer that [`Engine::claim`] would give; answers come in the order asked.
    /// - One that fails does so alone.
    ///
    /// # Cancel safety
    /// Dropping the future leaves every one of them in doubt, as [`Engine::claim`] does.
    async fn claim_each(&self, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        join_all(claims.iter().map(|claim| self.claim(claim))).await
    }

    /// Waits until a queued claim is granted.
    ///
    /// # Behaviour
    /// - Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead.
    /// - It is told, it does not poll, unless the profile says so.
    /// - The wake-up is a hint: that the claim holds the resource is checked before it is said.
    /// - A claim that expired or was evicted while it waited is *gone*, with the reason.
    /// - A claim that is not known is *gone*.
    /// - Waiting again, or at two places at once, keeps the same place.
    ///
    /// # Cancel safety
    /// Dropping the future keeps the place in the queue.
    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited>;

    /// Changes a claim: downgrade, resize, proclaim.
    ///
    /// # Behaviour
    /// - Exclusive becomes shared without a moment in which another could come in as a writer; the
    ///   token stays; waiting readers at the front come in.
    /// - Shared never becomes exclusive: two readers that both upgrade would wait for each other
    ///   for ever. The change is refused.
    /// - Another number of slots is in force at once for everyone; holders above it keep theirs.
    /// - A new value is seen by every inspection and watch that follows.
    /// - A claim that is gone stays gone.
    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed>;

    /// Renews claims, held and queued, in one go.
    ///
    /// # Behaviour
    /// - Answers per claim, in the order asked.
    /// - A claim that was not renewed within its TTL is gone, and its resource passes on.
    /// - A claim that is gone is never brought back: not by a renewal that was on its way while it
    ///   was withdrawn, expired or evicted.
    /// - A queued claim that is renewed keeps its place.
    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>>;

    /// Gives claims back, held or queued.
    ///
    /// # Behaviour
    /// - Answers per claim, in the order asked; never an error to repeat.
    /// - Touches this very claim only: an expired holder cannot free its successor.
    /// - The next in line is told at once.
    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>>;

    /// Shows resources with their holders and waiters.
    ///
    /// # Behaviour
    /// - Only resources that are claimed, by name, at most [`Page::limit`]; `next` leads on.
    /// - Holders carry their token; waiters come in the order in which they will be served.
    /// - A claim that is past its TTL is not shown.
    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection>;

    /// Ends one claim by force.
    ///
    /// # Behaviour
    /// - Ends this claim, never its whole session.
    /// - The holder is told, with the reason; the next in line comes in, with a greater token.
    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted>;

    /// Follows changes of resources and registers.
    ///
    /// # Behaviour
    /// - Begins with the present state of what exists.
    /// - Every change that lasts is told; states that came and went may be left out.
    /// - After an error the stream ends.
    async fn watch(&self, selector: &Selector) -> Result<WatchStream>;

    /// Reads a register, and raises its fence if asked to.
    ///
    /// # Behaviour
    /// - Sees every write that was acknowledged before.
    /// - A register that was never written has no value and version 0.
    /// - Raising refuses every older token from then on, and is refused itself if it is older.
    /// - A token of another source is an error that names both, until the fence is rebased.
    async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading>;

    /// Writes a register under a condition.
    ///
    /// # Behaviour
    /// - All parts of the condition are checked and the value is written in one step.
    /// - A refused write has no effect and returns what is there.
    /// - Versions rise by every write and never come back, not even after a delete or an expiry.
    /// - A token passes if no later one has been seen; equal ones pass unless the condition is
    ///   strict; shared tokens fence nobody but older writers; each slot has a fence of its own.
    /// - Who held a slot and who held the whole resource fence each other.
    /// - With `newer`, only a greater stamp is written.
    /// - A value with an expiry is gone after it, and not before.
    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written>;

    /// Deletes a register under a condition.
    ///
    /// # Behaviour
    /// - Keeps version and fence: a zombie cannot write after a delete either.
    /// - Deleting what is not there is done, and changes nothing.
    async fn delete(&self, register: &Name, condition: &Condition) -> Result<Written>;

    /// Ends the connection. Claims that were not withdrawn end at the latest as those of a dead
    /// process.
    ///
    /// # Behaviour
    /// - May be called twice. Verbs afterwards fail with *closed*.
    async fn close(&self);
}
