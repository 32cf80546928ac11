//! What this client knows of the rows of its claims.

use std::collections::HashMap;
use std::sync::Arc;

use palisade_core::{
    BootInstant, Claim, ClaimId, Clock, Evicted, Gather, GoneReason, Grant, Name, Result, SystemClock, Token,
};
use parking_lot::Mutex;

use super::signature::{Held, Whose};
use super::table::{Table, Taken};
use crate::engine::Inner;
use crate::verbs::{TOGETHER, all};

/// The rows of one client's claims.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) inner: Arc<Inner>,
    pub(super) table: Table,
    pub(super) taking: Gather<Arc<Known>, Result<Taken>>,
    pub(super) freeing: Gather<Arc<Claim>, Result<()>>,
    known: Mutex<HashMap<ClaimId, Arc<Known>>>,
}

/// A row that was asked for.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) claim: Arc<Claim>,
    /// What it was let in with, lastly: one that asks again may be given another.
    token: Mutex<Token>,
    /// Held while it is asked for, also if nobody waits for the answer any more.
    pub(super) asking: tokio::sync::Mutex<()>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Until when it is the claim's; `None` while it never was.
    until: Option<BootInstant>,
    /// Whether the claim is to be withdrawn: its row is not asked for any more.
    pub(super) leaves: bool,
    /// Whether the last look found somebody else in it.
    lost: bool,
}

/// How the row of a claim stands that was renewed.
#[derive(Debug)]
pub(super) enum Stands {
    Until(BootInstant),
    /// It has none yet, or is another connection's.
    Elsewhere,
    Lost(GoneReason),
}

impl Rows {
    pub(super) fn new(inner: Arc<Inner>, table: Table) -> Self {
        let (taking, freeing) = (Gather::default(), Gather::default());
        Self { inner, table, taking, freeing, known: Mutex::default() }
    }

    pub(super) fn check(&self, name: &Name) -> Result<()> {
        self.table.check(name)
    }

    /// Whether the row is the claim's, as far as this client was told.
    pub(super) fn is_taken(&self, claim: ClaimId) -> bool {
        self.known(claim).is_some_and(|known| {
            let state = known.state.lock();
            state.until.is_some() && !state.lost
        })
    }

    /// Whether a claim that was let in among ours still waits for its row.
    pub(super) fn only_waits(&self, claim: ClaimId) -> bool {
        self.known(claim).is_some_and(|known| known.state.lock().until.is_none())
    }

    /// The grant, which lasts no longer than the row.
    pub(super) fn bound(&self, claim: &Claim, mut grant: Grant) -> Grant {
        if let Some(row) = self.known(claim.id).and_then(|known| known.state.lock().until) {
            grant.valid_until = row.min(grant.valid_until);
        }
        grant
    }

    /// Has the rows of claims last longer, of those that have one.
    pub(super) async fn extend(&self, claims: &[Arc<Claim>]) -> Result<()> {
        self.forget_ended();
        let have = claims.iter().filter_map(|claim| self.known(claim.id)).filter(|known| {
            let state = known.state.lock();
            state.until.is_some() && !state.leaves
        });
        let have: Vec<Arc<Known>> = have.collect();
        all(have.chunks(TOGETHER).map(|some| self.extend_some(some)).collect()).await.map(|_: Vec<()>| ())
    }

    async fn extend_some(&self, some: &[Arc<Known>]) -> Result<Vec<()>> {
        let claims: Vec<&Claim> = some.iter().map(|known| &*known.claim).collect();
        let line = self.inner.link.line().await?;
        let extended = self.table.extend(&line, &claims).await?;
        for (known, extended) in some.iter().zip(extended) {
            match extended {
                Some(sent) => known.is_ours(sent),
                None => known.is_others(),
            }
        }
        Ok(Vec::new())
    }

    /// How the row of a claim stands after it was to be extended.
    pub(super) fn stands(&self, claim: ClaimId) -> Stands {
        let Some(known) = self.known(claim) else { return Stands::Elsewhere };
        let state = known.state.lock();
        match state.until {
            None => Stands::Elsewhere,
            Some(until) if !state.lost => Stands::Until(until),
            Some(until) if until <= SystemClock.now() => Stands::Lost(GoneReason::Expired),
            Some(_) => {
                let reason = "its row in ShedLock's table was freed or taken by somebody else".to_owned();
                Stands::Lost(GoneReason::Evicted { reason })
            }
        }
    }

    /// Ends a hold by force: the row of a claim that was `evicted`, or another client's that was shown under this id.
    pub(super) async fn end(&self, resource: &Name, claim: ClaimId, evicted: bool) -> Result<Evicted> {
        let line = self.inner.link.line().await?;
        if evicted {
            self.table.free(&line, &[Table::ending(resource, claim)]).await?;
            return Ok(Evicted::Done);
        }
        // Also what an eviction left that was not answered.
        let meant = |held: &Held| match held.whose {
            Whose::Ours => self.table.signature.is_of(&held.by, claim),
            _ => held.id == claim,
        };
        let held = self.table.look(&line, &[resource.as_str()]).await?;
        match held.into_iter().find(meant) {
            Some(held) => {
                self.table.free(&line, &[(resource.as_str(), held.by)]).await.map(|()| Evicted::Done)
            }
            None => Ok(Evicted::NotFound),
        }
    }

    /// Forgets a claim that is no more.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.known.lock().remove(&claim);
    }

    pub(super) fn forget_each(&self, claims: &[Arc<Claim>]) {
        let mut known = self.known.lock();
        for claim in claims {
            known.remove(&claim.id);
        }
    }

    /// Forgets claims that ended without being withdrawn, as those that were evicted.
    fn forget_ended(&self) {
        let now = SystemClock.now();
        let lasts = |until: BootInstant, known: &Known| until + known.claim.ttl.as_duration() > now;
        self.known.lock().retain(|_, known| known.state.lock().until.is_none_or(|until| lasts(until, known)));
    }

    pub(super) fn known(&self, claim: ClaimId) -> Option<Arc<Known>> {
        self.known.lock().get(&claim).map(Arc::clone)
    }

    /// What is known of a claim, from before its row is asked for.
    pub(super) fn enter(&self, claim: &Arc<Claim>, token: Token) -> Arc<Known> {
        let mut all = self.known.lock();
        let known = all.entry(claim.id).or_insert_with(|| Known::new(claim, token));
        let mut last = known.token.lock();
        *last = token.max(*last);
        drop(last);
        Arc::clone(known)
    }
}

impl Known {
    fn new(claim: &Arc<Claim>, token: Token) -> Arc<Self> {
        Arc::new(Self {
            claim: Arc::clone(claim),
            token: Mutex::new(token),
            asking: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        })
    }

    pub(super) fn token(&self) -> Token {
        *self.token.lock()
    }

    /// Takes in that the row is the claim's, as was asked at `sent`.
    pub(super) fn is_ours(&self, sent: BootInstant) {
        let until = sent + self.claim.ttl.as_duration();
        let mut state = self.state.lock();
        state.until = Some(state.until.map_or(until, |known| known.max(until)));
        state.lost = false;
    }

    /// Takes in that somebody else is in the row: what the claim had of it, it has no more.
    pub(super) fn is_others(&self) {
        self.state.lock().lost = true;
    }
}
