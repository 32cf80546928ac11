use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use palisade_core::{
    Claim, ClaimId, Clock, Effect, Error, Evicted, GoneReason, Name, Result, SystemClock, Withdrawn,
};

use crate::claims::{Knowledge, Stand};
use crate::engine::Inner;
use crate::error::contended;
use crate::line::{Entry, Line, Stored, look_at, look_behind};
use crate::proto::{DeleteRequest, DeleteResponse, Request, path};
use crate::take::TRIES;
use crate::txn::{Answers, Txn, created_after, created_at, delete, get, put, touch};
use crate::wait::passes_to;

impl Inner {
    pub(crate) async fn withdraw(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        /// etcd takes 128 parts in a transaction, of which each claim is one that has two of its own.
        const TOGETHER: usize = 40;
        const AT_ONCE: usize = 8;
        // Without a connection nothing can be said.
        self.link.line().await?;
        let known: Vec<_> = claims.iter().map(|claim| self.claims.get(claim.id)).collect();
        let plain = |known: &Option<Knowledge>| {
            known.as_ref().is_some_and(|known| matches!(known.stand, Stand::Held(_)) && !known.doubtful)
        };
        if claims.len() > 1 && known.iter().all(plain) {
            let known: Vec<Knowledge> = known.into_iter().flatten().collect();
            let batches = known.chunks(TOGETHER).map(|some| self.release_some(some));
            let answers: Vec<Vec<Withdrawn>> =
                stream::iter(batches.collect::<Vec<_>>()).buffered(AT_ONCE).try_collect().await?;
            return Ok(answers.into_iter().flatten().collect());
        }
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            answers.push(self.withdraw_one(claim).await?);
        }
        Ok(answers)
    }

    /// Gives back claims that are held for sure.
    async fn release_some(&self, some: &[Knowledge]) -> Result<Vec<Withdrawn>> {
        let all = Txn::new().then_all(some.iter().map(|known| self.deletion(known).nested()));
        let mut answers = Answers::of(self.link.txn(all).await?.value);
        some.iter()
            .map(|known| {
                let deleted = answers.txn()?.succeeded;
                self.claims.forget(known.claim.id, GoneReason::Withdrawn);
                Ok(if deleted { Withdrawn::Released } else { Withdrawn::AlreadyGone })
            })
            .collect()
    }

    async fn withdraw_one(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Withdrawn> {
        let Some(known) = self.claims.get(claim.id) else { return self.withdraw_strange(claim).await };
        let answer = match &known.stand {
            Stand::Gone(_) if !known.doubtful => Withdrawn::AlreadyGone,
            Stand::Gone(_) | Stand::Lapsed { .. } => {
                self.remove(claim, &known).await?;
                Withdrawn::AlreadyGone
            }
            Stand::Asked | Stand::Waiting | Stand::Held(_) => self.remove(claim, &known).await?,
        };
        self.claims.forget(claim.id, GoneReason::Withdrawn);
        Ok(answer)
    }

    /// The transaction that deletes a claim whose revision is known, and nothing else.
    fn deletion(&self, known: &Knowledge) -> Txn {
        let (resource, tail) = (self.layout.resource(&known.claim.resource), &known.seat.tail);
        Txn::new()
            .when(created_at(resource.lock(tail), known.seat.created.unwrap_or(-1)))
            .then_all(known.seat.deletes(&resource))
    }

    /// Deletes a claim that is held and has no record beside it, by its key alone.
    ///
    /// Should no answer come, this may reach the server at any later time: so nobody sits there any more.
    async fn release(self: &Arc<Self>, known: &Knowledge) -> Result<bool> {
        let Some(leaving) = self.claims.leaves(known.claim.id) else { return Ok(false) };
        match self.delete_held(known).await {
            Ok(deleted) => {
                leaving.answered();
                Ok(deleted)
            }
            Err(error) if error.effect() == Effect::Unknown => self.release_again(known).await,
            Err(error) => Err(error),
        }
    }

    /// Deletes the key of a claim that is held.
    async fn delete_held(self: &Arc<Self>, known: &Knowledge) -> Result<bool> {
        if let Some(next) = self.next_of(known) {
            match self.pass_on(known, &next).await {
                // Also where the servers answered that they could not decide in time: they may yet.
                Err(error) if error.effect() == Effect::None => {
                    // One that is full, or lets us delete only, refuses what writes.
                    tracing::debug!(%error, "it could not be passed on");
                }
                answer => return answer,
            }
        }
        let key = self.layout.resource(&known.claim.resource).lock(&known.seat.tail);
        let alone = self.together.alone();
        if alone.is_none() {
            let answer = self.txn_among(&known.claim.resource, Txn::new().then(delete(key))).await?;
            return Ok(Answers::of(answer.value).deleted()? > 0);
        }
        let answer = self.link.call::<_, DeleteResponse>(path::DELETE, DeleteRequest { key }).await?;
        Ok(answer.value.deleted > 0)
    }

    /// Asks once more, where the last answer did not say what became of it: says whether it was ours to delete.
    ///
    /// A claim that is not there any more while its time is not up and its lease lives was deleted by the first try:
    /// whoever else ends a claim leaves a note.
    async fn release_again(&self, known: &Knowledge) -> Result<bool> {
        let grave = get(self.layout.grave(&self.client, known.claim.id));
        let answer = self.link.txn(self.deletion(known).or_else(grave)).await?.value;
        if answer.succeeded {
            return Ok(true);
        }
        let is_over = known.until <= SystemClock.now() || known.seat.lease.has_run_out();
        Ok(!is_over && Answers::of(answer).key()?.is_none())
    }

    /// The end of the key of who comes right after a claim that is held: as it was seen, or else as it was the last time.
    fn next_of(&self, known: &Knowledge) -> Option<Next> {
        let (resource, own) = (&known.claim.resource, &known.seat.tail);
        match self.claims.behind(known.claim.id) {
            Some(tail) => {
                self.lingering.comes_after(resource, own, Some(tail.clone()));
                Some(Next { tail, guessed: false })
            }
            None => self.lingering.next(resource, own).map(|tail| Next { tail, guessed: true }),
        }
    }

    /// Deletes a claim that is held, and in the same step writes the key of who came right after it: whoever hears of
    /// both holds, and need not look. Nothing but a holder that leaves does both. Whose key it is may be wrong: whoever
    /// is told so has somebody else right ahead, of whose end it hears nothing, and the right one looks.
    ///
    /// Not if a token was lifted: theirs may have to be, too.
    async fn pass_on(&self, known: &Knowledge, next: &Next) -> Result<bool> {
        let resource = self.layout.resource(&known.claim.resource);
        let created = known.seat.created.unwrap_or(i64::MAX);
        let (own, other) = (resource.lock(&known.seat.tail), resource.lock(&next.tail));
        let mut txn = Txn::new()
            .when(created_at(own.clone(), created))
            .when(created_after(other.clone(), created))
            .when(created_at(resource.floor.clone(), 0))
            .then(delete(own.clone()))
            .or_else(delete(own));
        if next.guessed {
            let look = Request::Range(look_behind(&resource, created));
            txn = txn.then(look.clone()).or_else(look);
        }
        let answer = self.link.txn(txn.then(touch(other))).await?.value;
        let mut answers = Answers::of(answer);
        let deleted = answers.deleted().map_err(Error::with_unknown_effect)? > 0;
        if next.guessed {
            let really = answers.range().ok().and_then(|range| passes_to(&resource, &range));
            self.lingering.comes_after(&known.claim.resource, &known.seat.tail, really);
        }
        Ok(deleted)
    }

    /// Deletes a claim of ours, so that it does not come any more either.
    pub(crate) async fn remove(self: &Arc<Self>, claim: &Claim, known: &Knowledge) -> Result<Withdrawn> {
        let Some(created) = known.seat.created.filter(|_| !known.doubtful) else {
            return self.bury(claim, known).await;
        };
        if matches!(known.stand, Stand::Held(_)) {
            let deleted = if known.seat.beside {
                match self.link.txn(self.deletion(known)).await {
                    Ok(answer) => answer.value.succeeded,
                    Err(error) if error.effect() == Effect::Unknown => self.release_again(known).await?,
                    Err(error) => return Err(error),
                }
            } else {
                self.release(known).await?
            };
            return Ok(if deleted { Withdrawn::Released } else { Withdrawn::AlreadyGone });
        }
        // Its turn may have come without its having looked.
        let resource = self.layout.resource(&claim.resource);
        let txn = Txn::new()
            .when(created_at(resource.lock(&known.seat.tail), created))
            .then_all(look_at(&resource, Some(created)))
            .then_all(known.seat.deletes(&resource));
        let answer = self.link.txn(txn).await?.value;
        if !answer.succeeded {
            return Ok(Withdrawn::AlreadyGone);
        }
        let line = Line::read(&resource, &mut Answers::of(answer))?;
        Ok(left(&line, claim.id))
    }

    /// Deletes a claim that may be there or on its way, and leaves a note that it must not come.
    async fn bury(&self, claim: &Claim, known: &Knowledge) -> Result<Withdrawn> {
        let (resource, tail) = (self.layout.resource(&claim.resource), &known.seat.tail);
        let (lock, record) = (resource.lock(tail), resource.record(tail));
        let lease = self.grave_lease().await?;
        for _ in 0..TRIES {
            let whole = Txn::new()
                .then(get(lock.clone()))
                .then(get(record.clone()))
                .then_all(look_at(&resource, None));
            let mut answers = Answers::of(self.link.txn(whole).await?.value);
            let (seen, stored) = (answers.key()?, answers.key()?);
            let line = Line::read(&resource, &mut answers)?;
            let created = seen.as_ref().map_or(0, |seen| seen.create_revision);
            let stored = match &seen {
                Some(seen) => Stored::find(seen, stored.as_ref())?,
                None => None,
            };
            let mine = stored.is_some_and(|stored| stored.record.is(claim.id));
            let grave = put(self.layout.grave(&self.client, claim.id), "withdrawn", lease);
            let mut txn = Txn::new().when(created_at(lock.clone(), created)).then(grave);
            if mine {
                txn = txn.then(delete(lock.clone())).then(delete(record.clone()));
            }
            if self.link.txn(txn).await?.value.succeeded {
                return Ok(if mine { left(&line, claim.id) } else { Withdrawn::AlreadyGone });
            }
        }
        Err(contended())
    }

    /// Withdraws a claim that another connection made.
    async fn withdraw_strange(&self, claim: &Claim) -> Result<Withdrawn> {
        let line = self.line_of(&claim.resource).await?;
        let Some(at) = line.place_of(claim.id) else { return Ok(Withdrawn::AlreadyGone) };
        let deleted =
            self.link.txn(self.deletion_of(&claim.resource, &line.entries[at])).await?.value.succeeded;
        Ok(if deleted { left(&line, claim.id) } else { Withdrawn::AlreadyGone })
    }

    fn deletion_of(&self, resource: &Name, entry: &Entry) -> Txn {
        let resource = self.layout.resource(resource);
        Txn::new()
            .when(created_at(resource.lock(&entry.tail), entry.lock.create_revision))
            .then(delete(resource.lock(&entry.tail)))
            .then(delete(resource.record(&entry.tail)))
    }

    /// A whole line as it is now.
    pub(crate) async fn line_of(&self, resource: &Name) -> Result<Line> {
        let resource = self.layout.resource(resource);
        let answer = self.link.look(Txn::new().then_all(look_at(&resource, None))).await?;
        Line::read(&resource, &mut Answers::of(answer.value))
    }

    pub(crate) async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let line = self.line_of(resource).await?;
        let Some(at) = line.place_of(claim) else { return Ok(Evicted::NotFound) };
        let entry = &line.entries[at];
        let mut txn = self.deletion_of(resource, entry);
        if let Some(stored) = &entry.record {
            let grave = self.layout.grave(&stored.record.client, claim);
            txn = txn.then(put(grave, format!("evicted {reason}"), self.grave_lease().await?));
        }
        let evicted = self.link.txn(txn).await?.value.succeeded;
        if evicted && self.claims.get(claim).is_some() {
            self.is_gone(claim, GoneReason::Evicted { reason: reason.to_owned() });
        }
        Ok(if evicted { Evicted::Done } else { Evicted::NotFound })
    }
}

/// Who comes right after a claim.
#[derive(Debug)]
struct Next {
    /// The end of its key.
    tail: String,
    /// Whether it is only who came right after the last one.
    guessed: bool,
}

/// What the claim left.
fn left(line: &Line, claim: ClaimId) -> Withdrawn {
    match line.place_of(claim) {
        Some(at) if line.holds(at) => Withdrawn::Released,
        Some(_) => Withdrawn::LeftQueue,
        None => Withdrawn::AlreadyGone,
    }
}
