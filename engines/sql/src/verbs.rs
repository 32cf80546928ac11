use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use palisade_core::{
    BootInstant, Busy, Change, Changed, Claim, ClaimId, Claimed, Clock, Effect, Error, ErrorKind, Evicted,
    GoneReason, Grant, ModeChange, Name, Place, Result, SystemClock, Token, Withdrawn,
};

use crate::claims::{Held, Look};
use crate::engine::Inner;
use crate::error::unexpected;
use crate::rows::{Answer, How, Leaving, Shown, micros, mode};
use crate::server::Line;

/// What the server says to a claim.
#[derive(Debug)]
pub(crate) enum Said {
    Granted(Grant),
    Queued(Place, Look),
    Busy(Busy),
    Gone(GoneReason),
}

impl Inner {
    pub(crate) async fn claim(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Claimed> {
        check(claim)?;
        let new = self.claims.asked(claim, SystemClock.now());
        let said = self.ask_soon(claim).await;
        self.conclude(claim, new, said)
    }

    /// What a claim comes to, `new` if it was asked for the first time.
    pub(crate) fn conclude(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        new: bool,
        said: Result<Said>,
    ) -> Result<Claimed> {
        let said = said.inspect_err(|error| match error.effect() {
            Effect::None if new => self.claims.never_sent(claim.id),
            Effect::None => {}
            Effect::Unknown => self.claims.in_doubt(claim.id),
        })?;
        #[cfg(feature = "mysql")]
        if let Some(bells) = &self.bells {
            bells.answered(self, claim, &said);
        }
        match said {
            Said::Granted(grant) => Ok(Claimed::Granted(grant)),
            Said::Queued(place, _) => Ok(Claimed::Queued(place)),
            Said::Busy(busy) => {
                self.claims.forget(claim.id, GoneReason::Unknown);
                Ok(Claimed::Busy(busy))
            }
            Said::Gone(reason) => {
                self.claims.forget(claim.id, reason.clone());
                let message = match reason {
                    GoneReason::Evicted { reason } => format!("the claim was evicted: {reason}"),
                    _ => "the claim was withdrawn before it arrived".to_owned(),
                };
                Err(Error::new(ErrorKind::Lost, message))
            }
        }
    }

    /// Asks for a claim, or after one that is known, and notes the answer.
    pub(crate) async fn ask(&self, claim: &Claim, how: How) -> Result<Said> {
        self.ask_each(&[(claim, how)]).await?.pop().ok_or_else(unexpected)?
    }

    /// Asks for several claims of one owner in one statement, and notes the answers.
    pub(crate) async fn ask_each(&self, asks: &[(&Claim, How)]) -> Result<Vec<Result<Said>>> {
        let Some((first, _)) = asks.first() else { return Ok(Vec::new()) };
        let owner = self.owners.text(&first.owner);
        let line = self.link.line().await?;
        let (answers, sent) = line.ask(&self.config.namespace, &self.client, &owner, asks).await?;
        let each = asks.iter().zip(answers);
        Ok(each.map(|((claim, _), answer)| self.noted(claim, &answer, sent)).collect())
    }

    fn noted(&self, claim: &Claim, answer: &Answer, sent: BootInstant) -> Result<Said> {
        let said = self.said(claim, answer, sent)?;
        self.claims.stands_at(claim.id, answer.seq);
        let began = |until: BootInstant| until.saturating_sub(claim.ttl.as_duration());
        match &said {
            Said::Granted(grant) => {
                let held = Held { token: grant.token, slot: grant.slot };
                self.claims.granted(claim.id, held, began(grant.valid_until));
            }
            Said::Queued(place, look) => {
                self.claims.waits(claim.id, *look);
                self.claims.refreshed(claim.id, began(place.valid_until));
            }
            Said::Busy(_) | Said::Gone(_) => {}
        }
        Ok(said)
    }

    fn said(&self, claim: &Claim, answer: &Answer, sent: BootInstant) -> Result<Said> {
        let valid_until = sent + micros(answer.remains).min(claim.ttl.as_duration());
        Ok(match answer.verdict {
            b'g' => {
                let token = answer.token.and_then(|token| token.try_into().ok()).and_then(Token::new);
                let slot = answer.slot.and_then(|slot| slot.try_into().ok());
                Said::Granted(Grant { token: token.ok_or_else(unexpected)?, slot, valid_until })
            }
            b'q' => {
                let ahead = answer.ahead.and_then(|ahead| ahead.try_into().ok()).unwrap_or(0);
                let at = answer.look.map(|_| SystemClock.now() + micros(answer.look));
                Said::Queued(Place { ahead, valid_until }, Look { at })
            }
            b'b' => {
                let shown = Shown::parse_all(answer.note.as_deref().unwrap_or("[]"))?;
                let holders = shown.iter().map(Shown::view).collect::<Result<_>>()?;
                Said::Busy(Busy { holders, look_again_in: None })
            }
            b'c' => {
                claim.mode.check_slots(answer.ahead.and_then(|slots| slots.try_into().ok()))?;
                return Err(unexpected());
            }
            b'l' | b'u' => Said::Gone(self.why(claim.id, answer.note.as_deref(), SystemClock.now())),
            _ => return Err(unexpected()),
        })
    }

    pub(crate) async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let answer = self.link.line().await?.change(&self.config.namespace, claim, change).await?;
        match (answer.verdict, change) {
            (b'd', _) => {
                #[cfg(feature = "mysql")]
                if let (Some(bells), Change::Mode(_)) = (&self.bells, change)
                    && self.claims.is_held(claim.id)
                {
                    bells.let_others_in(claim);
                }
                Ok(Changed::Done)
            }
            (b'u', _) => {
                let reason = self.why(claim.id, answer.note.as_deref(), SystemClock.now());
                self.claims.gone(claim.id, reason.clone());
                Ok(Changed::Gone(reason))
            }
            (b'n', Change::Mode(to)) => {
                let from = answer.ahead.zip(answer.slot).and_then(|(is, of)| mode(is, of));
                let held = answer.note.as_deref() == Some("true");
                match from.ok_or_else(unexpected)?.change_to(*to, held) {
                    ModeChange::Refused(why) => Ok(Changed::Refused(why.into())),
                    _ => Err(unexpected()),
                }
            }
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn withdraw(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        match claims {
            [claim] => Ok(vec![self.withdraw_soon(claim).await?]),
            claims => all(claims.chunks(TOGETHER).map(|some| self.withdraw_some(some)).collect()).await,
        }
    }

    pub(crate) async fn withdraw_some(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        // Rung once it is done, however it ends.
        #[cfg(feature = "mysql")]
        let _ringing = self.bells.as_ref().map(|bells| bells.leaving(claims));
        let leaving = claims.iter().map(|claim| {
            let (doubtful, seq) = self.claims.withdrawn(claim.id);
            Leaving { claim: Arc::clone(claim), doubtful, seq }
        });
        let leaving: Vec<Leaving> = leaving.collect();
        let line: Arc<Line> = self.link.line().await?;
        let answers = line.leave(&self.config.namespace, &self.client, &leaving).await?;
        for claim in claims {
            self.groups.forget(claim.id);
        }
        let withdrawn = answers.into_iter().map(|answer| match answer.verdict {
            b'r' => Ok(Withdrawn::Released),
            b'q' => Ok(Withdrawn::LeftQueue),
            b'g' => Ok(Withdrawn::AlreadyGone),
            _ => Err(unexpected()),
        });
        withdrawn.collect()
    }

    pub(crate) async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let line = self.link.line().await?;
        let done = line.evict(&self.config.namespace, resource, claim, reason).await?;
        Ok(if done { Evicted::Done } else { Evicted::NotFound })
    }
}

/// A floor above this leaves too little of the sequence to go on for ever.
const MAX_FLOOR: u64 = 1 << 62;

/// Refuses a claim that can never be granted.
pub(crate) fn check(claim: &Claim) -> Result<()> {
    if claim.token_floor.is_some_and(|floor| floor.get() > MAX_FLOOR) {
        return Err(Error::new(ErrorKind::Invalid, format!("a token floor is at most {MAX_FLOOR}")));
    }
    claim.mode.check_slots(None)
}

pub(crate) fn how(claim: &Claim) -> How {
    if claim.will_wait { How::Wait } else { How::NoWait }
}

/// How many claims a statement is about, where there are very many.
pub(crate) const TOGETHER: usize = 500;

/// The answers of all batches, in order.
pub(crate) async fn all<T>(batches: Vec<impl Future<Output = Result<Vec<T>>>>) -> Result<Vec<T>> {
    const AT_ONCE: usize = 4;
    let answers: Vec<Vec<T>> = stream::iter(batches).buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}
