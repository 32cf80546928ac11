use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all, try_join_all};
use palisade_core::{
    BootInstant, Change, Changed, Claim, ClaimId, Error, GoneReason, Grant, Mode, ModeChange, Renewed,
    Result, Waited, Withdrawn,
};

use super::book::{Known, Stand};
use super::engine::Inner;
use super::seat::Seat;
use crate::error::closed;

/// What shows that a claim stands.
enum Proof {
    /// An answer over its connection.
    Beat(usize),
    /// That its connection is seen to wait: nothing can be asked over it.
    Line(usize, Arc<Seat>),
}

/// What is to be asked to renew claims.
#[derive(Default)]
struct Renewal {
    seats: Vec<Arc<Seat>>,
    keys: Vec<i64>,
}

impl Renewal {
    fn add(&mut self, known: Known) -> Option<Proof> {
        match known.stand {
            Stand::Held(seat, _) => {
                let at = self.seats.iter().position(|other| Arc::ptr_eq(other, &seat)).unwrap_or_else(|| {
                    self.seats.push(seat);
                    self.seats.len() - 1
                });
                Some(Proof::Beat(at))
            }
            Stand::Waiting(seat) => {
                let at = self.keys.iter().position(|key| *key == known.key).unwrap_or_else(|| {
                    self.keys.push(known.key);
                    self.keys.len() - 1
                });
                Some(Proof::Line(at, seat))
            }
            Stand::Asked(_) | Stand::Leaving(_) | Stand::Gone(_) => None,
        }
    }
}

/// What a renewal found out about a claim.
#[derive(Clone, Copy)]
enum Found {
    /// It stands, and the server has heard of its client since.
    Since(BootInstant),
    /// It stands as it did: its end is where it was.
    Unchanged,
    Gone,
}

/// Who is at a lock.
pub(super) struct InLine {
    pub(super) sent: BootInstant,
    /// The server's ids of connections, and whether they hold.
    pub(super) sessions: Vec<(i64, bool)>,
}

impl Inner {
    pub(super) async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        loop {
            let turn = self.book.turn(claim.id);
            let told = turn.as_ref().map(|turn| turn.notified());
            let mut told = std::pin::pin!(told);
            if let Some(told) = told.as_mut().as_pin_mut() {
                told.enable();
            }
            self.check_open()?;
            match self.book.get(claim.id) {
                Some(known) => match known.stand {
                    Stand::Held(_, token) => {
                        let valid_until = known.valid_until();
                        return Ok(Waited::Granted(Grant { token, slot: None, valid_until }));
                    }
                    Stand::Gone(reason) => return Ok(Waited::Gone(reason)),
                    Stand::Asked(_) | Stand::Waiting(_) | Stand::Leaving(_) => {}
                },
                None => return Ok(Waited::Gone(GoneReason::Unknown)),
            }
            let Some(told) = told.as_mut().as_pin_mut() else { continue };
            tokio::select! {
                () = told => {}
                () = self.until_closed() => return Err(closed()),
            }
        }
    }

    pub(super) async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        self.check_open()?;
        let known = self.book.get(claim.id);
        let (known, seat) = match known {
            None => return Ok(Changed::Gone(GoneReason::Unknown)),
            Some(known) => match known.stand.clone() {
                Stand::Gone(reason) => return Ok(Changed::Gone(reason)),
                Stand::Asked(_) | Stand::Leaving(_) => return Ok(Changed::Gone(GoneReason::Withdrawn)),
                Stand::Held(seat, _) => (known, Some(seat)),
                Stand::Waiting(_) => (known, None),
            },
        };
        match change {
            Change::Value(value) => {
                if !self.book.proclaims(claim.id, value.clone()) {
                    return Ok(Changed::Gone(GoneReason::Unknown));
                }
                self.note_now(claim.id).await?;
                Ok(Changed::Done)
            }
            Change::Mode(to) => self.change_mode(&known, seat.as_ref(), *to).await,
        }
    }

    async fn change_mode(&self, known: &Known, seat: Option<&Arc<Seat>>, to: Mode) -> Result<Changed> {
        let from = if known.shared { Mode::Shared } else { Mode::Exclusive };
        match (from.change_to(to, seat.is_some()), seat) {
            (ModeChange::Same, _) => Ok(Changed::Done),
            (ModeChange::Downgrade, _) if !self.profile.modes.shared => {
                Ok(Changed::Refused("session locks of this server are exclusive".into()))
            }
            (ModeChange::Downgrade, Some(seat)) => {
                // In doubt, the claim is still given back as what it is: a session that ends gives back all it has.
                let held = seat.downgrade(known.key).await.inspect_err(|_| seat.end())?;
                if !held {
                    seat.end();
                    return Ok(Changed::Gone(GoneReason::SessionLost));
                }
                self.book.downgraded(known.claim.id);
                Ok(Changed::Done)
            }
            (ModeChange::Refused(why), _) => Ok(Changed::Refused(why.into())),
            (ModeChange::Downgrade | ModeChange::Resize(_), _) => {
                Ok(Changed::Refused("only what is held can be changed".into()))
            }
        }
    }

    /// Shows the server that this client lives, once for all claims on a connection.
    pub(super) async fn renew(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.check_open()?;
        let mut all = Renewal::default();
        let of: Vec<Option<Proof>> = claims.iter().map(|claim| all.add(self.book.get(claim.id)?)).collect();
        let beats = join_all(all.seats.iter().map(|seat| seat.beat()));
        let lines = join_all(all.keys.iter().map(|key| self.in_line(*key)));
        let (beats, lines) = join(beats, lines).await;
        let mut failure: Option<Error> = None;
        let mut heard = false;
        let mut renewed = Vec::with_capacity(claims.len());
        for (claim, proof) in claims.iter().zip(of) {
            let found = match proof {
                None => Ok(Found::Gone),
                Some(Proof::Beat(at)) => self.beaten(&all.seats[at], beats[at].as_ref()),
                Some(Proof::Line(at, seat)) => {
                    lines[at].as_ref().map(|line| self.still_waits(claim.id, &seat, line))
                }
            };
            heard |= found.is_ok();
            // One connection that hangs is no word on the others, and may be heard of again in time.
            let found = found.unwrap_or_else(|error| {
                failure.get_or_insert_with(|| error.for_another());
                Found::Unchanged
            });
            renewed.push(self.renewed(claim.id, found));
        }
        match failure {
            Some(error) if !heard => Err(error),
            _ => Ok(renewed),
        }
    }

    fn beaten<'a>(
        &self,
        seat: &Arc<Seat>,
        beat: std::result::Result<&BootInstant, &'a Error>,
    ) -> std::result::Result<Found, &'a Error> {
        match beat {
            Ok(began) => Ok(Found::Since(*began)),
            Err(_) if seat.has_ended() => {
                self.seat_lost(seat);
                Ok(Found::Gone)
            }
            Err(error) => Err(error),
        }
    }

    fn renewed(&self, claim: ClaimId, found: Found) -> Renewed {
        let until = match found {
            Found::Since(sent) => self.book.refreshed(claim, sent),
            Found::Unchanged => self.book.stands_until(claim),
            Found::Gone => None,
        };
        match until {
            Some(until) => Renewed::Valid { until },
            None => Renewed::Gone(match self.book.get(claim).map(|known| known.stand) {
                Some(Stand::Gone(reason) | Stand::Leaving(reason)) => reason,
                _ => GoneReason::Unknown,
            }),
        }
    }

    /// What is seen of a claim that waits.
    fn still_waits(self: &Arc<Self>, claim: ClaimId, seat: &Arc<Seat>, line: &InLine) -> Found {
        /// What was let in is told at once, unless the connection is dead and nobody noticed.
        const UNHEARD: Duration = Duration::from_secs(1);
        match line.sessions.iter().find(|(pid, _)| *pid == seat.pid()) {
            Some((_, false)) => Found::Since(line.sent),
            Some((_, true)) => {
                let (inner, seat) = (Arc::clone(self), Arc::clone(seat));
                tokio::spawn(async move {
                    tokio::time::sleep(UNHEARD).await;
                    let unheard =
                        inner.book.get(claim).is_some_and(|known| matches!(known.stand, Stand::Waiting(_)));
                    if unheard {
                        seat.end();
                    }
                });
                // It was let in before this look was sent, and the server counts from then.
                Found::Unchanged
            }
            None => {
                // Unless it was let in and given back meanwhile, or has not come to the server yet.
                let waits = self
                    .book
                    .get(claim)
                    .is_some_and(|known| known.noted && matches!(known.stand, Stand::Waiting(_)));
                if waits {
                    seat.end();
                    self.seat_lost(seat);
                    return Found::Gone;
                }
                Found::Since(line.sent)
            }
        }
    }

    pub(super) async fn withdraw(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        match claims {
            [claim] => Ok(vec![self.withdraw_one(claim).await?]),
            claims => try_join_all(claims.iter().map(|claim| self.withdraw_one(claim))).await,
        }
    }
}
