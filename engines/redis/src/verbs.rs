use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use palisade_core::{
    BootInstant, Busy, Change, Changed, Claim, ClaimId, Claimed, Clock, Effect, Error, ErrorKind, Evicted,
    GoneReason, Grant, ModeChange, Name, Place, Renewed, Result, SystemClock, Token, Withdrawn,
};
use redis::{Cmd, Value};

use crate::claims::{Held, Look};
use crate::engine::Inner;
use crate::error::unexpected;
use crate::keys::Given;
use crate::link::{Answer, InUse};
use crate::record::{mode_code, mode_of, tail, ttl_millis};
use crate::reply::{self, Reply};
use crate::script::{Call, Script};

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
        self.check(claim)?;
        let new = self.claims.asked(claim, SystemClock.now());
        let said = self.ask_soon(claim, new).await;
        self.conclude(claim, new, said)
    }

    /// Refuses a claim that can never be granted.
    pub(crate) fn check(&self, claim: &Claim) -> Result<()> {
        claim.mode.check_slots(None)?;
        self.check_key(&claim.resource)
    }

    /// What a claim comes to, `new` if it was asked for the first time.
    pub(crate) fn conclude(&self, claim: &Claim, new: bool, said: Result<Said>) -> Result<Claimed> {
        if !new && said.as_ref().map_or_else(Error::effect, |_| Effect::None) == Effect::None {
            self.claims.answered_again(claim.id);
        }
        let said = said.inspect_err(|error| match error.effect() {
            Effect::None if new => self.claims.never_sent(claim.id),
            Effect::None => {}
            Effect::Unknown => self.claims.in_doubt(claim.id),
        })?;
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

    /// Refuses names whose lock would be one of our own keys.
    fn check_key(&self, resource: &Name) -> Result<()> {
        if self.layout.is_own(resource) {
            let message = "a lock key that begins with palisade: would be one of Palisade's own; name it otherwise, or see option key";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    /// Asks for a claim, or after one that is known (`a`), and notes the answer.
    pub(crate) async fn ask(&self, claim: &Arc<Claim>, flag: char) -> Result<Said> {
        let claim = &match self.claims.bare(claim.id) {
            Some(written) => Box::pin(self.above_bare(claim, written)).await?,
            None => Arc::clone(claim),
        };
        let mut in_use = self.link.line().await?;
        let call = self.call_on(&self.scripts.claim, [&claim.resource].into_iter(), |command| {
            self.add_claim(command, claim, flag, in_use.counts());
        });
        let answer = self.link.call_over(&mut in_use, &call).await?;
        self.noted(claim, answer, &in_use)
    }

    /// A call of a script for some resources; `rest` adds the arguments.
    pub(crate) fn call_on<'a, 'n>(
        &self,
        script: &'a Script,
        resources: impl Iterator<Item = &'n Name> + Clone,
        rest: impl FnOnce(&mut Cmd),
    ) -> Call<'a> {
        let (mut count, mut given) = (0, Given::Lock);
        for resource in resources.clone() {
            count += 1;
            if self.layout.given(resource) == Given::All {
                given = Given::All;
            }
        }
        script.call(count * given as usize, |command| {
            for resource in resources {
                self.layout.add_keys(command, resource, given);
            }
            rest(command);
        })
    }

    /// Adds what a script wants to know of a claim that asks. `counts` says that tokens need not be compared
    /// with the clock.
    pub(crate) fn add_claim(&self, command: &mut Cmd, claim: &Claim, flag: char, counts: bool) {
        let (mode, _) = mode_code(claim.mode);
        command.arg(&marked(claim.id, b' ')[..]);
        match claim.token_floor {
            Some(floor) => command.arg(format!("{flag}{mode}{floor}")),
            None if counts => command.arg(&[flag as u8, mode as u8][..]),
            None => command.arg(&[flag as u8, mode as u8, b'+'][..]),
        };
        command.arg(ttl_millis(claim)).arg(self.records.record(claim, &self.client));
    }

    /// What an answer says, noted.
    pub(crate) fn noted(&self, claim: &Claim, answer: Answer, in_use: &InUse) -> Result<Said> {
        // Only the shortcut is sure to have made a token now, and compared it with the clock if it was told to:
        // one that was given before says nothing about the counter.
        let made_now = matches!(answer.value, Value::BulkString(_));
        let said = self.said(claim, answer)?;
        if let Said::Granted(grant) = &said
            && made_now
        {
            in_use.counter.made(grant.token, claim.token_floor.is_none());
        }
        self.note(claim, &said);
        Ok(said)
    }

    pub(crate) fn note(&self, claim: &Claim, said: &Said) {
        match said {
            Said::Granted(grant) => {
                let began = grant.valid_until.saturating_sub(claim.ttl.as_duration());
                self.claims.granted(claim.id, Held { token: grant.token, slot: grant.slot }, began);
            }
            Said::Queued(place, look) => {
                self.claims.waits(claim.id, *look);
                self.note_end(claim, place.valid_until);
            }
            Said::Busy(_) | Said::Gone(_) => {}
        }
    }

    pub(crate) fn note_end(&self, claim: &Claim, until: BootInstant) {
        self.claims.refreshed(claim.id, until.saturating_sub(claim.ttl.as_duration()));
    }

    fn said(&self, claim: &Claim, Answer { value, sent }: Answer) -> Result<Said> {
        // The shortcut answers with the token alone.
        if let Value::BulkString(token) = &value {
            let token = std::str::from_utf8(token).ok().and_then(|token| token.parse().ok());
            let token = token.and_then(Token::new).ok_or_else(unexpected)?;
            return Ok(granted_alone(claim, token, sent));
        }
        let mut reply = Reply::new(value)?;
        let end = |left: i64| {
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            sent + left.min(claim.ttl.as_duration())
        };
        Ok(match reply.text()?.as_str() {
            "g" => {
                let token = Token::new(reply.parsed()?).ok_or_else(unexpected)?;
                let slot = reply.text()?.parse().ok();
                Said::Granted(Grant { token, slot, valid_until: end(reply.number()?) })
            }
            "q" => {
                let ahead = u32::try_from(reply.number()?).map_err(|_| unexpected())?;
                let valid_until = end(reply.number()?);
                let after =
                    u64::try_from(reply.number()?).ok().map(|left| Duration::from_millis(left.max(1)));
                let at = after.map(|after| SystemClock.now() + after);
                let look = Look { at, foreign: reply.number()? == 1 };
                Said::Queued(Place { ahead, valid_until }, look)
            }
            "b" => {
                let now = reply.parsed()?;
                let shown = reply::shown(reply.next()?)?;
                let holders = shown.iter().filter(|one| one.holds).map(|one| one.view(now));
                Said::Busy(Busy { holders: holders.collect::<Result<_>>()?, look_again_in: None })
            }
            "c" => {
                claim.mode.check_slots(Some(reply.parsed()?))?;
                return Err(unexpected());
            }
            "e" => return Err(reply::said_no(&reply.text()?)),
            "l" | "u" => Said::Gone(self.why(claim.id, &reply.text()?, SystemClock.now())),
            _ => return Err(unexpected()),
        })
    }

    pub(crate) async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let call = self.call_on(&self.scripts.change, [&claim.resource].into_iter(), |command| {
            command.arg(claim.id.to_string());
            match change {
                Change::Value(value) => {
                    command.arg("v").arg(tail(claim.family, &claim.owner, value.as_ref()));
                }
                Change::Mode(to) => {
                    let (mode, of) = mode_code(*to);
                    command.arg("m").arg(mode.to_string()).arg(of);
                }
            }
        });
        let mut reply = Reply::new(self.link.call(&call).await?.value)?;
        match (reply.text()?.as_str(), change) {
            ("d", _) => Ok(Changed::Done),
            ("u", _) => {
                let reason = self.why(claim.id, &reply.text()?, SystemClock.now());
                self.claims.gone(claim.id, reason.clone());
                Ok(Changed::Gone(reason))
            }
            ("n", Change::Mode(to)) => {
                let code = reply.text()?;
                let from = mode_of(&code, reply.parsed()?).ok_or_else(unexpected)?;
                match from.change_to(*to, reply.number()? == 1) {
                    ModeChange::Refused(why) => Ok(Changed::Refused(why.into())),
                    _ => Err(unexpected()),
                }
            }
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        all(self.batches(claims).map(|some| self.renew_some(some)).collect()).await
    }

    async fn renew_some(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let call = self.call_on(&self.scripts.renew, resources(claims), |command| {
            for claim in claims {
                command.arg(claim.id.to_string()).arg(ttl_millis(claim));
            }
        });
        let answer = self.link.call(&call).await?;
        let (sent, now) = (answer.sent, SystemClock.now());
        let notes = reply::each(answer.value, claims.len())?;
        let renewed = claims.iter().zip(notes).map(|(claim, note)| match note {
            None => {
                self.claims.refreshed(claim.id, sent);
                Renewed::Valid { until: sent + claim.ttl.as_duration() }
            }
            Some(note) => {
                let reason = self.why(claim.id, &note, now);
                self.claims.gone(claim.id, reason.clone());
                Renewed::Gone(reason)
            }
        });
        Ok(renewed.collect())
    }

    pub(crate) async fn withdraw(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        match claims {
            [claim] => Ok(vec![self.withdraw_soon(claim).await?]),
            // Boxed, so that each single withdrawal, which is the usual one, need not make room for it.
            claims => {
                Box::pin(all(self.batches(claims).map(|some| self.withdraw_some(some)).collect())).await
            }
        }
    }

    /// Withdraws some claims at once. If it fails for one, that is found out by asking again.
    pub(crate) async fn withdraw_some(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        self.withdraw_each(claims).await?.into_iter().collect()
    }

    pub(crate) async fn withdraw_each(&self, claims: &[Arc<Claim>]) -> Result<Vec<Result<Withdrawn>>> {
        let call = self.call_on(&self.scripts.withdraw, resources(claims), |command| {
            for claim in claims {
                let doubtful = self.claims.withdrawn(claim.id);
                let mark = if doubtful { b'?' } else { b' ' };
                command.arg(&marked(claim.id, mark)[..]);
            }
            command.arg(claims.iter().map(|claim| ttl_millis(claim)).max().unwrap_or_default());
        });
        let value = self.link.call(&call).await?.value;
        // The shortcut, for what nobody waits for.
        if value == Value::Int(1) {
            return Ok(claims.iter().map(|_| Ok(Withdrawn::Released)).collect());
        }
        let answers = Reply::new(value)?.map(|answer| {
            if let Value::Array(_) = &answer {
                return Err(reply::failure(answer));
            }
            match reply::text(answer)?.as_str() {
                "r" => Ok(Withdrawn::Released),
                "q" => Ok(Withdrawn::LeftQueue),
                "g" => Ok(Withdrawn::AlreadyGone),
                _ => Err(unexpected()),
            }
        });
        let answers: Vec<Result<Withdrawn>> = answers.collect();
        if answers.len() == claims.len() { Ok(answers) } else { Err(unexpected()) }
    }

    /// What one call may carry: on a Cluster, keys of one slot only.
    pub(crate) fn batches<'a>(&self, claims: &'a [Arc<Claim>]) -> impl Iterator<Item = &'a [Arc<Claim>]> {
        let one_server = !matches!(self.config.servers, crate::Servers::Cluster(_));
        claims.chunks(if one_server { self.profile.batch } else { 1 })
    }

    pub(crate) async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.check_key(resource)?;
        let call = self.call_on(&self.scripts.evict, [resource].into_iter(), |command| {
            command.arg(claim.to_string()).arg(reason);
        });
        match reply::text(self.link.call(&call).await?.value)?.as_str() {
            "1" => Ok(Evicted::Done),
            "0" => Ok(Evicted::NotFound),
            "2" => Err(Error::new(
                ErrorKind::Conflict,
                "there is something at this key that is no lock; if it may go, delete it yourself",
            )),
            _ => Err(unexpected()),
        }
    }
}

/// What some claims are for.
pub(crate) fn resources(claims: &[Arc<Claim>]) -> impl Iterator<Item = &Name> + Clone {
    claims.iter().map(|claim| &claim.resource)
}

/// A grant for the whole TTL, in answer to what was sent at `sent`.
pub(crate) fn granted_alone(claim: &Claim, token: Token, sent: BootInstant) -> Said {
    Said::Granted(Grant { token, slot: None, valid_until: sent + claim.ttl.as_duration() })
}

/// An id and what scripts compare with it.
pub(crate) fn marked(id: ClaimId, mark: u8) -> [u8; 33] {
    let mut text = [mark; 33];
    uuid::Uuid::from_bytes(*id.as_bytes()).simple().encode_lower(&mut text);
    text
}

/// The answers of all batches, in order. Not all batches at once: a Cluster has one per claim.
async fn all<T>(mut batches: Vec<impl Future<Output = Result<Vec<T>>>>) -> Result<Vec<T>> {
    const AT_ONCE: usize = 16;
    if batches.len() == 1 {
        return batches.remove(0).await;
    }
    let answers: Vec<Vec<T>> = stream::iter(batches).buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}
