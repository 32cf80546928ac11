//! How a claim is asked for, and how it waits.

use std::sync::Arc;
use std::time::Duration;

use palisade_core::{
    BootInstant, Busy, Claim, ClaimId, Claimed, Clock, Error, ErrorKind, GoneReason, Grant, Mode, Place,
    Result, SystemClock, Token,
};

use super::book::{Known, Leave, Stand};
use super::engine::Inner;
use super::seat::Seat;
use super::seats::Found;
use crate::error::{closed, unexpected};
use crate::verbs::check;

/// How soon a grant must come for nobody to be told that its claim waits: most waits are shorter, and to see that one
/// stands in line, and to note it, takes the server longer than to let many in. Of a crowd that takes turns this must be
/// longer than a round, or the looks make each round longer still.
const SOON: Duration = Duration::from_millis(50);

/// A place over which a key may be asked for; given back when it is dropped, unless it is kept.
struct Reserved<'a> {
    inner: &'a Arc<Inner>,
    seat: Option<Arc<Seat>>,
    key: i64,
}

impl Reserved<'_> {
    fn keep(mut self) -> Option<Arc<Seat>> {
        self.seat.take()
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(seat) = &self.seat {
            self.inner.seats.free(seat, self.key);
        }
    }
}

/// Announces a seat that is being made, until it is there.
struct Coming<'a>(Option<&'a Inner>);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Some(inner) = self.0 {
            inner.seats.not_made();
        }
    }
}

/// A claim that is being asked for: whatever is dropped wherever, nothing of it stays at the server.
struct Asking<'a> {
    inner: &'a Arc<Inner>,
    id: ClaimId,
    armed: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        match self.inner.book.leave(self.id) {
            Leave::Take(left) => self.inner.depart_later(left, None),
            Leave::Nothing => self.inner.book.forget(self.id),
            Leave::Moving | Leave::Gone => {}
        }
    }
}

/// A seat that is being told for how long it may be silent; ends it unless that was answered. Else it might end sooner than
/// the claims on it believe, or later.
struct Retiming<'a>(Option<&'a Arc<Seat>>);

impl Drop for Retiming<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.0 {
            seat.end();
        }
    }
}

impl Inner {
    pub(super) async fn claim(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Claimed> {
        check(claim)?;
        self.check_mode(claim.mode)?;
        let key = self.terms.key_of(&claim.resource);
        let shared = claim.mode == Mode::Shared;
        loop {
            self.check_open()?;
            let Some(known) = self.book.begin(claim, key, shared, SystemClock.now()) else {
                let mut asking = Asking { inner: self, id: claim.id, armed: true };
                let answer = self.ask(claim, key, shared).await;
                asking.armed = answer.is_err();
                return answer;
            };
            match &known.stand {
                Stand::Held(seat, token) => return self.granted_again(claim, &known, seat, *token).await,
                Stand::Waiting(seat) => return self.queued(claim, &known, seat).await,
                Stand::Gone(reason) => return Err(lost(reason)),
                Stand::Asked(_) | Stand::Leaving(_) => self.until_moved(claim.id).await?,
            }
        }
    }

    async fn ask(self: &Arc<Self>, claim: &Arc<Claim>, key: i64, shared: bool) -> Result<Claimed> {
        let (alone, any) = self.own_claims_on(key, claim.id);
        let worth_a_try = if claim.will_wait { !any && !self.is_hot(key) } else { !alone };
        if worth_a_try && let Some(grant) = self.attempt(claim, key, shared).await? {
            return Ok(Claimed::Granted(grant));
        }
        if !claim.will_wait {
            let holders = self.holders(claim, key).await?;
            self.book.forget(claim.id);
            return Ok(Claimed::Busy(Busy { holders, look_again_in: None }));
        }
        if worth_a_try {
            self.heat(key);
        }
        self.stand_in_line(claim, key, shared).await
    }

    /// Whether a claim of ours has `key` for itself, and whether any other is there at all.
    fn own_claims_on(&self, key: i64, but: ClaimId) -> (bool, bool) {
        let others: Vec<ClaimId> = self.seats.on(key).into_iter().filter(|other| *other != but).collect();
        let alone = others.iter().filter_map(|other| self.book.get(*other));
        let alone = alone.into_iter().any(|known| matches!(known.stand, Stand::Held(..)) && !known.shared);
        (alone, !others.is_empty())
    }

    /// Takes what is free.
    async fn attempt(self: &Arc<Self>, claim: &Arc<Claim>, key: i64, shared: bool) -> Result<Option<Grant>> {
        let reserved = self.reserve(claim, key, false).await?;
        let Some(seat) = reserved.seat.clone() else { return Err(unexpected()) };
        if !self.book.seated(claim.id, Some(&seat)) {
            return Err(lost(&GoneReason::Withdrawn));
        }
        // From here on the claim has the place; what leaves gives it back.
        reserved.keep();
        let began = SystemClock.now();
        let answer = seat.attempt(key, shared).await;
        if answer.is_err() && !self.book.seated(claim.id, Some(&seat)) {
            return Err(lost(&GoneReason::Withdrawn));
        }
        match answer? {
            Some(token) => self.came_in(claim, key, &seat, token, Some(began)).await.map(Some),
            None => {
                if !self.book.seated(claim.id, None) {
                    return Err(lost(&GoneReason::Withdrawn));
                }
                self.seats.free(&seat, key);
                Ok(None)
            }
        }
    }

    /// Waits in the server's queue, at a place of its own.
    async fn stand_in_line(self: &Arc<Self>, claim: &Arc<Claim>, key: i64, shared: bool) -> Result<Claimed> {
        let reserved = self.reserve(claim, key, true).await?;
        let Some(seat) = reserved.seat.clone() else { return Err(unexpected()) };
        if !self.book.waits(claim.id, &seat) {
            return Err(lost(&GoneReason::Withdrawn));
        }
        reserved.keep();
        let mut waiting = {
            let (inner, claim, seat) = (Arc::clone(self), Arc::clone(claim), Arc::clone(&seat));
            Box::pin(async move { inner.wait_at(&claim, key, shared, &seat).await })
        };
        let soon = SystemClock.now() + SOON.min(claim.ttl.as_duration() / 4);
        tokio::select! {
            granted = &mut waiting => return granted.map(Claimed::Granted),
            () = SystemClock.sleep_until(soon) => {}
        }
        self.heat(key);
        tokio::spawn({
            let (inner, id) = (Arc::clone(self), claim.id);
            async move {
                let Err(error) = waiting.await else { return };
                tracing::debug!(%error, "a wait ended");
                if let Leave::Take(left) = inner.book.leave(id) {
                    inner.depart_later(left, Some(GoneReason::SessionLost));
                }
            }
        });
        match self.book.get(claim.id) {
            Some(known) => self.queued(claim, &known, &seat).await,
            None => Err(lost(&GoneReason::Withdrawn)),
        }
    }

    /// Waits without a bound. After an error the lock may be held all the same: a statement that is undone does not undo it.
    async fn wait_at(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        key: i64,
        shared: bool,
        seat: &Arc<Seat>,
    ) -> Result<Grant> {
        let answer = seat.wait(key, shared).await;
        // Whoever withdrew it sees to the rest.
        if !matches!(self.book.get(claim.id), Some(Known { stand: Stand::Waiting(_), .. })) {
            return Err(lost(&GoneReason::Withdrawn));
        }
        let answer = answer?;
        // First: as soon as it is held it may be given back, and the seat be another's.
        self.seats.came_in(seat);
        self.came_in(claim, key, seat, answer, None).await
    }

    /// Notes that a claim was let in, with a token above its floor.
    async fn came_in(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        key: i64,
        seat: &Arc<Seat>,
        token: i64,
        began: Option<BootInstant>,
    ) -> Result<Grant> {
        let mut token = token_of(token)?;
        if let Some(floor) = claim.token_floor.filter(|floor| token <= *floor) {
            token = token_of(seat.token_above(key, floor.get()).await?)?;
        }
        let held = self.book.holds(claim.id, token, began, SystemClock.now());
        let known = held.ok_or_else(|| lost(&GoneReason::Withdrawn))?;
        // Whoever noticed its end did not know yet that this was held over it.
        if seat.has_ended() {
            self.seat_lost(seat);
            return Err(lost(&GoneReason::SessionLost));
        }
        Ok(Grant { token, slot: None, valid_until: known.valid_until() })
    }

    async fn granted_again(
        &self,
        claim: &Arc<Claim>,
        known: &Known,
        seat: &Arc<Seat>,
        mut token: Token,
    ) -> Result<Claimed> {
        if let Some(floor) = claim.token_floor.filter(|floor| token <= *floor) {
            token = token_of(seat.token_above(known.key, floor.get()).await?)?;
            if !self.book.lifted(claim.id, token) {
                return Err(lost(&GoneReason::Unknown));
            }
            if known.noted {
                self.note(claim.id);
            }
        }
        Ok(Claimed::Granted(Grant { token, slot: None, valid_until: known.valid_until() }))
    }

    /// Says that a claim waits, once it is seen to, and who is ahead of it.
    async fn queued(&self, claim: &Arc<Claim>, known: &Known, seat: &Arc<Seat>) -> Result<Claimed> {
        const LOOK: Duration = Duration::from_millis(1);
        let until = SystemClock.now() + self.terms.call_timeout;
        let mut noted = known.noted;
        loop {
            let noting = async {
                // Without it others are shown the claim later.
                if !noted && let Err(error) = self.note_now(claim.id).await {
                    tracing::debug!(%error, "a claim is not shown yet");
                }
            };
            let (ahead, ()) = tokio::join!(self.ahead(known.key, seat), noting);
            noted = true;
            let ahead = ahead?;
            let Some(known) = self.book.get(claim.id) else { return Err(lost(&GoneReason::Withdrawn)) };
            match known.stand {
                Stand::Held(_, token) => {
                    return Ok(Claimed::Granted(Grant {
                        token,
                        slot: None,
                        valid_until: known.valid_until(),
                    }));
                }
                Stand::Waiting(_) => {
                    if let Some(ahead) = ahead {
                        return Ok(Claimed::Queued(Place { ahead, valid_until: known.valid_until() }));
                    }
                }
                Stand::Asked(_) | Stand::Leaving(_) => self.until_moved(claim.id).await?,
                Stand::Gone(GoneReason::SessionLost) => {
                    // It never held, so that it may be asked for again.
                    self.book.forget(claim.id);
                    let message = "the connection at which the claim waited is gone";
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                Stand::Gone(reason) => return Err(lost(&reason)),
            }
            if SystemClock.now() > until {
                return Err(Error::new(ErrorKind::Timeout, "the server was not seen to queue the claim")
                    .with_unknown_effect());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A place over which `claim` may ask for `key`: beside others, or for itself where it `waits`.
    async fn reserve<'a>(self: &'a Arc<Self>, claim: &Claim, key: i64, waits: bool) -> Result<Reserved<'a>> {
        let (ttl, most) = (claim.ttl.as_duration(), self.terms.connections);
        let asked = (key, claim.id);
        let found = if waits { self.seats.own(asked, ttl, most) } else { self.seats.share(asked, ttl, most) };
        match found {
            Found::Seat(seat) => Ok(Reserved { inner: self, seat: Some(seat), key }),
            Found::Retimed(seat) => {
                let reserved = Reserved { inner: self, seat: Some(Arc::clone(&seat)), key };
                let mut retiming = Retiming(Some(&seat));
                seat.end_when_idle(ttl).await?;
                retiming.0 = None;
                Ok(reserved)
            }
            Found::Make => {
                let mut coming = Coming(Some(self));
                let seat = self.make_seat(ttl).await?;
                coming.0 = None;
                self.seats.made(&seat, Some(asked), ttl, waits);
                self.check_open().inspect_err(|_| seat.end())?;
                Ok(Reserved { inner: self, seat: Some(seat), key })
            }
            Found::Full => Err(Error::new(
                ErrorKind::Full,
                format!(
                    "all {most} connections of this client hold or wait, and who waits for a session lock needs one of its own; raise `connections`, or use lease rows (mode=rows)"
                ),
            )),
        }
    }

    /// Completes once a claim that is on its way stands elsewhere.
    pub(super) async fn until_moved(&self, claim: ClaimId) -> Result<()> {
        let Some(turn) = self.book.turn(claim) else { return Ok(()) };
        let moved = turn.notified();
        let mut moved = std::pin::pin!(moved);
        moved.as_mut().enable();
        match self.book.get(claim).map(|known| known.stand) {
            Some(Stand::Asked(_) | Stand::Leaving(_)) => {}
            _ => return Ok(()),
        }
        tokio::time::timeout(self.terms.call_timeout * 2, moved).await.map_err(|_| {
            let message = "an earlier call for the same claim has not ended";
            Error::new(ErrorKind::Timeout, message).with_unknown_effect()
        })
    }

    /// Refuses what no server has, or not this one.
    fn check_mode(&self, mode: Mode) -> Result<()> {
        let what = match mode {
            Mode::Slot { .. } => "slots",
            Mode::Shared if !self.profile.modes.shared => "shared claims",
            Mode::Shared | Mode::Exclusive => return Ok(()),
        };
        let message = format!("session locks of this server know no {what}; use lease rows (mode=rows)");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }
}

fn token_of(number: i64) -> Result<Token> {
    u64::try_from(number).ok().and_then(Token::new).ok_or_else(unexpected)
}

fn lost(reason: &GoneReason) -> Error {
    let message = match reason {
        GoneReason::SessionLost => "the connection that the claim was on is gone",
        GoneReason::Expired => "the claim was not renewed in time",
        _ => "the claim was withdrawn before it arrived",
    };
    Error::new(ErrorKind::Lost, message)
}
