use std::sync::Arc;

use palisade_core::{
    Admission, Busy, Claim, Claimed, Clock, Effect, Error, ErrorKind, GoneReason, Grant, Mode, Place, Result,
    SystemClock,
};

use crate::claims::{Held, Knowledge, Stand, is_alone};
use crate::engine::Inner;
use crate::error::{contended, is_lease_gone, unexpected};
use crate::keys::Resource;
use crate::line::{Line, Standing, Stored, claim_puts, look_ahead, look_at};
use crate::proto::{KeyValue, RangeRequest, Request, TxnResponse};
use crate::record::Record;
use crate::txn::{
    Answers, Txn, created_at, get, newest_under, nothing_new_under, nothing_under, put, written_at,
};

/// How often something is tried again that others changed meanwhile.
pub(crate) const TRIES: usize = 16;

/// What became of an attempt to come in.
enum Taken {
    Done(Claimed),
    /// The key is in use by a claim that is to be deleted yet.
    KeyInUse,
}

/// What a look at a claim of ours found.
pub(crate) enum Found {
    At(Line, usize),
    Gone(GoneReason),
}

impl Inner {
    pub(crate) async fn claim(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Claimed> {
        claim.mode.check_slots(None)?;
        for _ in 0..TRIES {
            match self.claims.get(claim.id).map(|known| known.stand) {
                Some(Stand::Gone(reason @ (GoneReason::Withdrawn | GoneReason::Evicted { .. }))) => {
                    return Err(lost(&reason));
                }
                Some(Stand::Gone(reason)) => self.claims.forget(claim.id, reason),
                Some(Stand::Lapsed { .. }) => return Err(lost(&GoneReason::Expired)),
                _ => {}
            }
            let lease = self.lease(claim.ttl).await?;
            let known = self.claims.asked(claim, &lease, SystemClock.now());
            self.announce_soon(&lease);
            match self.take(claim, &known).await {
                Ok(Taken::Done(claimed)) => return Ok(claimed),
                // One that may be on its way still stays where it would arrive, or there would be two of it.
                Ok(Taken::KeyInUse) if known.doubtful => return Err(contended()),
                Ok(Taken::KeyInUse) => self.claims.reseat(claim.id, &lease),
                Err(error) if is_lease_gone(&error) => {
                    self.claims.forget(claim.id, GoneReason::SessionLost);
                    self.lease_is_over(&known.seat.lease);
                }
                Err(error) => {
                    match error.effect() {
                        Effect::Unknown => self.claims.in_doubt(claim.id),
                        Effect::None if known.seat.created.is_none() && !known.doubtful => {
                            self.claims.forget(claim.id, GoneReason::Unknown);
                        }
                        Effect::None => {}
                    }
                    return Err(error);
                }
            }
        }
        Err(contended())
    }

    async fn take(self: &Arc<Self>, claim: &Arc<Claim>, known: &Knowledge) -> Result<Taken> {
        if known.seat.created.is_some() {
            return self.settle(claim, known, false).await.map(Taken::Done);
        }
        match claim.mode {
            Mode::Exclusive | Mode::Shared if claim.will_wait => self.join(claim, known).await,
            _ => self.enter(claim, known).await,
        }
    }

    /// The puts that are a claim.
    fn puts(&self, claim: &Claim, known: &Knowledge, slot: Option<u32>) -> Vec<Request> {
        let (resource, seat) = (self.layout.resource(&claim.resource), &known.seat);
        let record = Record::of(claim, &self.client, slot);
        let value = claim.value.clone().unwrap_or_default();
        claim_puts(&resource, &seat.tail, &record, value, seat.lease.id)
    }

    /// A transaction that comes in only if the key is free, and the claim was not withdrawn before.
    fn unless_buried(&self, claim: &Claim, known: &Knowledge) -> Txn {
        let lock = self.layout.resource(&claim.resource).lock(&known.seat.tail);
        Txn::new().when(created_at(lock, 0)).when(created_at(self.layout.grave(&self.client, claim.id), 0))
    }

    /// Gets in line, which for a free resource is to hold it.
    async fn join(self: &Arc<Self>, claim: &Arc<Claim>, known: &Knowledge) -> Result<Taken> {
        let resource = self.layout.resource(&claim.resource);
        let puts = self.puts(claim, known, None);
        let count = puts.len();
        let plain = claim.token_floor.is_none() && claim.mode.slots().is_none();
        if plain && !self.lingering.is_at(&claim.resource) {
            // What is free mostly is asked for in a way that tells no more than that: it is less work.
            let alone = Txn::new()
                .when(nothing_under(&resource.locks))
                .when(created_at(self.layout.grave(&self.client, claim.id), 0))
                .when(created_at(resource.floor.clone(), 0))
                .then_all(puts.clone());
            let answer = self.txn_soon(&claim.resource, alone).await?;
            if answer.value.succeeded {
                self.claims.came(claim.id, answer.revision);
                return self.granted(claim, answer.revision, None).map(Taken::Done);
            }
            self.lingering.expect(&claim.resource);
        }
        let answer = self.link.txn(self.behind(claim, known, &resource, puts)).await?;
        self.joined(claim, known, count, answer.value, answer.revision).await
    }

    /// The transaction that gets in line, and shows who is ahead.
    fn behind(&self, claim: &Claim, known: &Knowledge, resource: &Resource, puts: Vec<Request>) -> Txn {
        let newest = RangeRequest { keys_only: true, ..newest_under(&resource.locks, 2) };
        self.unless_buried(claim, known)
            .then_all(puts)
            .then(Request::Range(newest))
            .then(get(resource.floor.clone()))
            .or_else(get(resource.lock(&known.seat.tail)))
            .or_else(get(resource.record(&known.seat.tail)))
            .or_else(get(self.layout.grave(&self.client, claim.id)))
    }

    /// Reads the answer to [`Self::behind`], of which so many parts were puts.
    async fn joined(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        known: &Knowledge,
        puts: usize,
        answer: TxnResponse,
        created: i64,
    ) -> Result<Taken> {
        let came = answer.succeeded;
        let mut answers = Answers::of(answer);
        if !came {
            return self.is_there(claim, known, &mut answers).await;
        }
        self.claims.came(claim.id, created);
        answers.skip(puts)?;
        let (newest, floor) = (answers.range()?, answers.key()?);
        if claim.mode.slots().is_some() {
            return self.settle(claim, known, true).await.map(Taken::Done);
        }
        let Some(ahead) = newest.kvs.get(1) else {
            self.lingering.forget(&claim.resource);
            if floor.is_none() && claim.token_floor.is_none() {
                return self.granted(claim, created, None).map(Taken::Done);
            }
            return self.settle(claim, known, true).await.map(Taken::Done);
        };
        let start = self.layout.resource(&claim.resource).locks.len();
        let tail = String::from_utf8_lossy(&ahead.key[start..]).into_owned();
        if claim.mode == Mode::Exclusive && is_alone(&tail) {
            self.claims.came_behind(claim.id, tail);
            // All but the first wait, as far as can be told from their number.
            return self.queued(claim, u32::try_from(newest.count - 2).unwrap_or(0)).map(Taken::Done);
        }
        self.settle(claim, known, true).await.map(Taken::Done)
    }

    /// What it means that a key was not free: an earlier try has come in, or it must not come, or it is
    /// another claim's.
    async fn is_there(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        known: &Knowledge,
        answers: &mut Answers,
    ) -> Result<Taken> {
        let (lock, beside, grave) = (answers.key()?, answers.key()?, answers.key()?);
        if let Some(lock) = lock
            && Stored::find(&lock, beside.as_ref())?.is_some_and(|stored| stored.record.is(claim.id))
        {
            self.claims.came(claim.id, lock.create_revision);
            return self.settle(claim, known, false).await.map(Taken::Done);
        }
        match grave {
            Some(grave) => Err(self.is_buried(claim, &grave)),
            None => Ok(Taken::KeyInUse),
        }
    }

    fn is_buried(&self, claim: &Claim, grave: &KeyValue) -> Error {
        let reason = buried_because(grave);
        self.claims.forget(claim.id, reason.clone());
        lost(&reason)
    }

    /// Comes in only if that is to hold, or else gets in line if it will wait.
    async fn enter(self: &Arc<Self>, claim: &Arc<Claim>, known: &Knowledge) -> Result<Taken> {
        let resource = self.layout.resource(&claim.resource);
        let mut admitted = (
            self.unless_buried(claim, known).when(nothing_under(&resource.locks)),
            claim.mode.slots().map(|_| 0),
        );
        for _ in 0..TRIES {
            let (txn, slot) = admitted;
            let puts = self.puts(claim, known, slot);
            let count = puts.len();
            let txn = txn
                .then_all(puts)
                .then(get(resource.floor.clone()))
                .or_else_all(look_at(&resource, None))
                .or_else(get(self.layout.grave(&self.client, claim.id)));
            let answer = self.link.txn(txn).await?;
            let mut answers = Answers::of(answer.value.clone());
            if answer.value.succeeded {
                self.claims.came(claim.id, answer.revision);
                answers.skip(count)?;
                if answers.key()?.is_none() && claim.token_floor.is_none() {
                    return self.granted(claim, answer.revision, slot).map(Taken::Done);
                }
                return self.settle(claim, known, false).await.map(Taken::Done);
            }
            let line = Line::read(&resource, &mut answers)?;
            let grave = answers.key()?;
            if let Some(at) = line.place_of(claim.id) {
                self.claims.came(claim.id, line.entries[at].lock.create_revision);
                return self.settle(claim, known, false).await.map(Taken::Done);
            }
            if let Some(grave) = grave {
                return Err(self.is_buried(claim, &grave));
            }
            claim.mode.check_slots(line.slots_in_force())?;
            if line.entries.iter().any(|entry| entry.tail == known.seat.tail) {
                return Ok(Taken::KeyInUse);
            }
            let Some(Admission { slot }) = line.admits(claim.mode) else {
                return if claim.will_wait {
                    self.join(claim, known).await
                } else {
                    self.busy(claim, &line).map(Taken::Done)
                };
            };
            admitted = (self.if_unchanged(claim, known, &resource, &line, answer.revision), slot);
        }
        if claim.will_wait { self.join(claim, known).await } else { Err(contended()) }
    }

    /// A transaction that comes in only if nobody else did since `line` was seen.
    fn if_unchanged(
        &self,
        claim: &Claim,
        known: &Knowledge,
        resource: &Resource,
        line: &Line,
        revision: i64,
    ) -> Txn {
        self.unless_buried(claim, known)
            .when(nothing_new_under(&resource.locks, revision))
            .when(nothing_new_under(&resource.records, revision))
            .when(written_at(resource.slots.clone(), line.resized.map_or(0, |(_, when)| when)))
    }

    fn busy(&self, claim: &Claim, line: &Line) -> Result<Claimed> {
        self.claims.forget(claim.id, GoneReason::Unknown);
        Ok(Claimed::Busy(Busy { holders: line.holders()?, look_again_in: None }))
    }

    fn queued(&self, claim: &Claim, ahead: u32) -> Result<Claimed> {
        let known = self.claims.get(claim.id).ok_or_else(|| lost(&GoneReason::Withdrawn))?;
        Ok(Claimed::Queued(Place { ahead, valid_until: known.until }))
    }

    fn granted(&self, claim: &Claim, token: i64, slot: Option<u32>) -> Result<Claimed> {
        let token = u64::try_from(token).ok().and_then(palisade_core::Token::new).ok_or_else(unexpected)?;
        self.grant_of(claim, Held { token, slot }).map(Claimed::Granted)
    }

    /// Notes a grant, and says until when it stands.
    pub(crate) fn grant_of(&self, claim: &Claim, held: Held) -> Result<Grant> {
        self.claims.holds(claim.id, held);
        let known = self.claims.get(claim.id).ok_or_else(|| lost(&GoneReason::Withdrawn))?;
        match known.stand {
            Stand::Held(_) => Ok(Grant { token: held.token, slot: held.slot, valid_until: known.until }),
            Stand::Gone(reason) => Err(lost(&reason)),
            _ => Err(lost(&GoneReason::Expired)),
        }
    }

    /// Looks how a claim that came in stands. One that came `just` now may be refused yet.
    async fn settle(self: &Arc<Self>, claim: &Arc<Claim>, known: &Knowledge, just: bool) -> Result<Claimed> {
        for _ in 0..TRIES {
            let (line, at) = match self.look(claim, false).await? {
                Found::At(line, at) => (line, at),
                Found::Gone(reason) => {
                    self.is_gone(claim.id, reason.clone());
                    return Err(lost(&reason));
                }
            };
            if just && let Err(conflict) = claim.mode.check_slots(line.slots_in_force()) {
                self.remove(claim, known).await?;
                self.claims.forget(claim.id, GoneReason::Unknown);
                return Err(conflict);
            }
            match self.advance(claim, &line, at).await? {
                Some(Standing::Holds { slot }) => {
                    let token = line.token(at).ok_or_else(unexpected)?;
                    return self.grant_of(claim, Held { token, slot }).map(Claimed::Granted);
                }
                Some(_) => return self.queued(claim, line.waiting_ahead(at)),
                None => {}
            }
        }
        Err(contended())
    }

    /// Takes the slot or the token that a claim has coming. `None` if it must be looked at again.
    pub(crate) async fn advance(&self, claim: &Claim, line: &Line, at: usize) -> Result<Option<Standing>> {
        let standing = line.standing(at);
        let resource = self.layout.resource(&claim.resource);
        let entry = &line.entries[at];
        let Some(stored) = &entry.record else { return Err(unexpected()) };
        let mut record = stored.record.clone();
        let same = entry.unchanged(&resource).into_iter().fold(Txn::new(), Txn::when);
        let txn = match standing {
            Standing::Waits(_) => return Ok(Some(standing)),
            Standing::MayTake { slot } => {
                record.slot = Some(slot);
                let unchanged = written_at(resource.slots.clone(), line.resized.map_or(0, |(_, when)| when));
                same.when(unchanged)
            }
            Standing::Holds { .. } => {
                let Some(token) = lifted(claim, line, at) else { return Ok(Some(standing)) };
                record.token = Some(token);
                let (_, when) = line.floor.unwrap_or_default();
                let floor = resource.floor.clone();
                same.when(written_at(floor.clone(), when)).then(put(floor, token.to_string(), 0))
            }
        };
        let value = entry.lock.value.clone();
        self.link.txn(txn.then_all(entry.puts(&resource, &record, value))).await?;
        Ok(None)
    }

    /// Looks at a claim that came in: all who are ahead, or only the one right ahead where that is enough.
    pub(crate) async fn look(&self, claim: &Claim, narrow: bool) -> Result<Found> {
        let Some(known) = self.claims.get(claim.id) else { return Ok(Found::Gone(GoneReason::Unknown)) };
        if let Stand::Gone(reason) = known.stand {
            return Ok(Found::Gone(reason));
        }
        let resource = self.layout.resource(&claim.resource);
        let requests = match known.seat.created {
            Some(created) if narrow && claim.mode == Mode::Exclusive => {
                look_ahead(&resource, &known.seat.tail, created)
            }
            created => look_at(&resource, created),
        };
        let answer = self.link.look(Txn::new().then_all(requests)).await?;
        let line = Line::read(&resource, &mut Answers::of(answer.value))?;
        match line.place_of(claim.id) {
            Some(at) => Ok(Found::At(line, at)),
            None => Ok(Found::Gone(self.why_gone(&known).await?)),
        }
    }
}

/// The token that a grant must get instead of its own.
fn lifted(claim: &Claim, line: &Line, at: usize) -> Option<u64> {
    let (token, created) = (line.token(at)?.get(), line.entries[at].lock.create_revision.unsigned_abs());
    let asked = claim.token_floor.map_or(0, palisade_core::Token::get);
    let floor = line.floor.map_or(0, |(floor, _)| floor);
    // A token that was lifted is what the floor says, or less: others came after.
    let behind = token == created && floor >= token;
    (asked >= token || behind).then(|| created.max(floor + 1).max(asked + 1))
}

/// Why a claim was buried.
pub(crate) fn buried_because(grave: &KeyValue) -> GoneReason {
    match grave.value.strip_prefix(b"evicted ") {
        Some(reason) => GoneReason::Evicted { reason: String::from_utf8_lossy(reason).into_owned() },
        None => GoneReason::Withdrawn,
    }
}

pub(crate) fn lost(reason: &GoneReason) -> Error {
    let message = match reason {
        GoneReason::Evicted { reason } => format!("the claim was evicted: {reason}"),
        GoneReason::Withdrawn => "the claim was withdrawn before it arrived".to_owned(),
        GoneReason::Expired => "the claim was not renewed in time".to_owned(),
        _ => "the claim is gone".to_owned(),
    };
    Error::new(ErrorKind::Lost, message)
}
