//! What others are shown of claims: who holds, since when, with which token and value.
//!
//! The server's locks say none of that. Rows beside them would cost a commit each way, so that they are written late, and
//! only for what is held or waits for more than a moment. Whoever looks waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use palisade_core::{ClaimId, Clock, Error, ErrorKind, Name, Result, SystemClock};
use tokio::sync::{mpsc, oneshot};

use super::book::{Known, Stand};
use super::engine::Inner;
use crate::error::closed;
use crate::rows::family_column;

/// What is held for less is not noted; what is held for twice as long is. In between nobody is woken for it: who takes turns
/// would be for each.
const AFTER: Duration = Duration::from_millis(20);

/// When what could not be noted is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// How long what nobody asked for is collected: each statement is a commit.
const REST: Duration = Duration::from_millis(20);

/// How many go in one statement.
const AT_ONCE: usize = 500;

/// A claim whose note is to be brought up to date, and who waits for that.
pub(super) type Asked = (ClaimId, Option<oneshot::Sender<Result<()>>>);

/// What is noted of one claim.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) id: ClaimId,
    pub(crate) seat: String,
    pub(crate) key: i64,
    pub(crate) resource: Name,
    pub(crate) family: i16,
    pub(crate) token: Option<i64>,
    /// For how many microseconds it has been so.
    pub(crate) age: i64,
    pub(crate) owner: Arc<str>,
    pub(crate) value: Option<Bytes>,
}

/// Notes and forgets, one statement after the other: so none overtakes another.
pub(super) async fn keep_notes(inner: Arc<Inner>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let mut failed = BTreeSet::new();
    let mut rested_at = SystemClock.now();
    loop {
        let mut batch: Vec<Asked> = Vec::new();
        let (stale, more) = match SystemClock.now() {
            now if now < rested_at => (Vec::new(), true),
            now => inner.book.stale(now.saturating_sub(AFTER)),
        };
        if !stale.is_empty() {
            rested_at = SystemClock.now() + REST;
        }
        if stale.is_empty() {
            let due = async {
                if more {
                    SystemClock.sleep_until(SystemClock.now() + AFTER).await;
                } else if !failed.is_empty() {
                    // Again, until it is done: others are shown what is not so any more.
                    tokio::time::sleep(AGAIN).await;
                } else {
                    inner.book.granted.notified().await;
                }
            };
            tokio::select! {
                count = asked.recv_many(&mut batch, AT_ONCE) => if count == 0 { return },
                () = due => if failed.is_empty() { continue },
                () = inner.until_closed() => return,
            }
        }
        let mut claims: BTreeSet<ClaimId> = batch.iter().map(|(claim, _)| *claim).chain(stale).collect();
        claims.append(&mut failed);
        let claims: Vec<ClaimId> = claims.into_iter().collect();
        let mut why = None;
        for some in claims.chunks(AT_ONCE) {
            if let Err(error) = inner.write_notes(some).await {
                tracing::debug!(%error, "claims were not noted");
                failed.extend(some);
                why = Some(error);
            }
        }
        for (claim, done) in batch {
            let said = why.as_ref().filter(|_| failed.contains(&claim)).map(Error::for_another);
            // Who asked may have gone.
            let _ = done.map(|done| done.send(said.map_or(Ok(()), Err)));
        }
    }
}

impl Inner {
    /// Has others shown a claim as it stands, or not any more, soon.
    pub(super) fn note(&self, claim: ClaimId) {
        let _ = self.noting.send((claim, None));
    }

    /// Has others shown a claim as it stands, or not any more. Completes once that is done.
    ///
    /// # Errors
    /// It could not be yet; it is tried again.
    pub(super) async fn note_now(&self, claim: ClaimId) -> Result<()> {
        let (done, told) = oneshot::channel();
        self.noting.send((claim, Some(done))).map_err(|_| closed())?;
        let told = tokio::time::timeout(self.terms.call_timeout, told).await.map_err(|_| {
            Error::new(ErrorKind::Timeout, "the server did not answer in time").with_unknown_effect()
        })?;
        told.map_err(|_| closed())?
    }

    /// Has others shown all that this client holds.
    pub(super) async fn note_all(&self) -> Result<()> {
        let unnoted = self.book.unnoted();
        try_join_all(unnoted.into_iter().map(|claim| self.note_now(claim))).await.map(drop)
    }

    async fn write_notes(&self, claims: &[ClaimId]) -> Result<()> {
        let (mut gone, mut notes) = (Vec::new(), Vec::new());
        for claim in claims {
            match self.book.to_note(*claim).and_then(|known| self.note_of(&known)) {
                Some(note) => notes.push(note),
                None => gone.push(*claim),
            }
        }
        let line = self.desk.inner.link.line().await?;
        let noting = line.note(&self.terms.namespace, &gone, &notes);
        tokio::time::timeout(self.terms.call_timeout, noting)
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "the server did not answer")))
    }

    fn note_of(&self, known: &Known) -> Option<Note> {
        let (seat, token) = match &known.stand {
            Stand::Held(seat, token) => (seat, Some(token.get().cast_signed())),
            Stand::Waiting(seat) => (seat, None),
            Stand::Asked(_) | Stand::Leaving(_) | Stand::Gone(_) => return None,
        };
        let age = SystemClock.now().saturating_since(known.since);
        Some(Note {
            id: known.claim.id,
            seat: seat.name().to_owned(),
            key: known.key,
            resource: known.claim.resource.clone(),
            family: family_column(known.claim.family),
            token,
            age: i64::try_from(age.as_micros()).unwrap_or(i64::MAX),
            owner: self.owners.text(&known.claim.owner),
            value: known.value.clone(),
        })
    }
}
