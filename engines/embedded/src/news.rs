use std::sync::Arc;
use std::time::Duration;

use palisade_core::{ClaimId, ErrorKind, GoneReason, Signal};

use crate::ledger::{self, Aftermath, Ledger};
use crate::notice::is_over_within;
use crate::session::SessionId;
use crate::shared::{Shared, Urgency};
use crate::wake::{self, News, Told, Wake};

/// What one session tells another after a decision, and what it does with what it is told.
impl Shared {
    /// Does what a committed transaction left to do.
    pub(crate) fn attend_to(self: &Arc<Self>, after: Aftermath) {
        for wake in after.wakes {
            self.pass_on(wake);
        }
        for session in after.dead.into_iter().filter(|session| *session != self.session) {
            tracing::info!(?session, "a session has ended; its claims were passed on");
            self.sessions.remove(session);
        }
    }

    fn pass_on(self: &Arc<Self>, wake: Wake) {
        if wake.session != self.session {
            match self.post.tell(&wake) {
                Told::Yes => {}
                Told::NobodyThere => self.spawn_unheard(wake.session, Some(wake.claim)),
                Told::Unknown => self.spawn_unheard(wake.session, None),
            }
            return;
        }
        if let News::Gone(reason) = wake.news {
            self.signal_gone(wake.claim, reason);
        }
        self.waiters.tell(wake.claim);
    }

    /// Acts on a message of another session: only a hint, so the rows are asked.
    pub(crate) fn hear(&self, message: &[u8]) {
        let Some((kind, claim)) = wake::decode(message) else { return };
        if kind == wake::GONE {
            self.signal_if_gone(claim);
        }
        self.waiters.tell(claim);
    }

    /// Looks after everything, because messages may have been turned away.
    pub(crate) fn hear_all(&self) {
        for claim in self.notes.all() {
            self.signal_if_gone(claim);
        }
        self.waiters.tell_all();
    }

    fn signal_if_gone(&self, claim: ClaimId) {
        match self.read(|db| Ok(ledger::why_gone(db, claim)?)) {
            Ok(GoneReason::Unknown) | Err(_) => {}
            Ok(reason) => self.signal_gone(claim, reason),
        }
    }

    /// Tells the client once.
    fn signal_gone(&self, claim: ClaimId, reason: GoneReason) {
        if self.notes.forget(claim) {
            self.signals.send(Signal::Gone { claim, reason });
        }
    }

    /// Passes on the claims of a session that did not hear and is over; if a child keeps it alive,
    /// the one that was granted to a process that no longer listens, if there is such a one.
    fn spawn_unheard(self: &Arc<Self>, session: SessionId, granted: Option<ClaimId>) {
        // Short: if a child keeps the session alive, others wait meanwhile.
        const PATIENCE: Duration = Duration::from_millis(50);
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            if is_over_within(&shared.sessions, session, PATIENCE).await {
                shared.reap(session).await;
            } else if let Some(claim) = granted {
                let work = move |ledger: &mut Ledger<'_>| ledger.drop_unheard(session, claim);
                let _ = shared.decide(Urgency::Normal, work).await;
            }
        });
    }

    /// Removes a session's claims once it is seen to be over.
    pub(crate) fn spawn_reaping(self: &Arc<Self>, session: SessionId) {
        // It closed its file, so the lock goes too; a busy machine may take its time.
        const PATIENCE: Duration = Duration::from_secs(5);
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            if is_over_within(&shared.sessions, session, PATIENCE).await {
                shared.reap(session).await;
            }
            // It may have let one of ours in and died before it could tell: then there was nothing
            // left to remove, and nobody else will tell.
            shared.waiters.tell_all();
        });
    }

    /// Removes the claims of a session that is over.
    pub(crate) async fn reap(self: &Arc<Self>, session: SessionId) {
        let reaped = self.decide(Urgency::Heavy, move |ledger| ledger.reap(&[session])).await;
        if let Err(problem) = reaped
            && problem.kind() != ErrorKind::Closed
        {
            tracing::warn!(%problem, ?session, "could not pass on the claims of a session that ended");
        }
    }
}
