use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use palisade_core::{
    BootInstant, Busy, Change, Changed, Claim, ClaimId, Claimed, Clock, Effect, Error, ErrorKind, Evicted,
    GoneReason, Grant, ModeChange, Name, Owner, Place, Renewed, Result, SystemClock, Token, Withdrawn,
};
use redis::Value;

use crate::claims::{Held, Look};
use crate::engine::Inner;
use crate::error::unexpected;
use crate::keys::KEYS;
use crate::link::Answer;
use crate::record::{mode_code, mode_of, owner_text, record, tail, ttl_millis};
use crate::reply::{self, Reply};

/// What the server says to a claim.
pub(crate) enum Said {
    Granted(Grant),
    Queued(Place, Look),
    Busy(Busy),
    Gone(GoneReason),
}

impl Inner {
    pub(crate) async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        claim.mode.check_slots(None)?;
        self.check_key(&claim.resource)?;
        let new = self.claims.asked(claim, SystemClock.now());
        let flag = if claim.will_wait { 'w' } else { 'n' };
        let said = match self.ask(claim, flag).await {
            Ok(said) => said,
            Err(error) => {
                match error.effect() {
                    Effect::None if new => self.claims.never_sent(claim.id),
                    Effect::None => {}
                    Effect::Unknown => self.claims.in_doubt(claim.id),
                }
                return Err(error);
            }
        };
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
        if self.layout.lock(resource).starts_with("palisade:") {
            let message = "a lock key that begins with palisade: would be one of Palisade's own; name it otherwise, or see option key";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    /// Asks for a claim, or after one that is known (`a`), and notes the answer.
    pub(crate) async fn ask(&self, claim: &Arc<Claim>, flag: char) -> Result<Said> {
        let keys = self.layout.keys(&claim.resource);
        let mut in_use = self.link.line().await?;
        let count = match claim.token_floor {
            Some(floor) => floor.to_string(),
            None if in_use.counts(keys.slot) => "-".to_owned(),
            None => "+".to_owned(),
        };
        let call = self.scripts.claim.call(KEYS, |command| {
            keys.add_to(command);
            let (mode, _) = mode_code(claim.mode);
            let flags: String = [flag, mode].iter().collect();
            command.arg(claim.id.to_string()).arg(flags).arg(ttl_millis(claim));
            command.arg(record(claim, &self.client, &self.owner(&claim.owner))).arg(count);
        });
        let answer = self.link.call_over(&mut in_use, &call).await?;
        let said = self.said(claim, answer)?;
        match &said {
            Said::Granted(grant) => {
                in_use.has_counted(keys.slot);
                self.claims.holds(claim.id, Held { token: grant.token, slot: grant.slot });
                self.note_end(claim, grant.valid_until);
            }
            Said::Queued(place, look) => {
                self.claims.waits(claim.id, *look);
                self.note_end(claim, place.valid_until);
            }
            Said::Busy(_) | Said::Gone(_) => {}
        }
        Ok(said)
    }

    /// An owner as it is stored. A client is mostly one owner.
    fn owner(&self, owner: &Arc<Owner>) -> Arc<str> {
        let mut last = self.last_owner.lock();
        match &*last {
            Some((known, text)) if Arc::ptr_eq(known, owner) => Arc::clone(text),
            _ => {
                let text: Arc<str> = owner_text(owner).into();
                *last = Some((Arc::clone(owner), Arc::clone(&text)));
                text
            }
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
            let valid_until = sent + claim.ttl.as_duration();
            return Ok(Said::Granted(Grant { token, slot: None, valid_until }));
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
            "l" | "u" => Said::Gone(self.why(claim.id, &reply.text()?, SystemClock.now())),
            _ => return Err(unexpected()),
        })
    }

    pub(crate) async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        let call = self.scripts.change.call(KEYS, |command| {
            self.layout.keys(&claim.resource).add_to(command);
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
        let call = self.scripts.renew.call(claims.len() * KEYS, |command| self.add_claims(command, claims));
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

    pub(crate) async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        all(self.batches(claims).map(|some| self.withdraw_some(some)).collect()).await
    }

    async fn withdraw_some(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        let call = self.scripts.withdraw.call(claims.len() * KEYS, |command| {
            self.add_keys(command, claims);
            for claim in claims {
                let doubtful = u8::from(self.claims.is_doubtful(claim.id));
                command.arg(claim.id.to_string()).arg(ttl_millis(claim)).arg(doubtful);
            }
        });
        for claim in claims {
            self.claims.forget(claim.id, GoneReason::Withdrawn);
        }
        let value = self.link.call(&call).await?.value;
        // The shortcut, for one that nobody waits for.
        if value == Value::Int(1) && claims.len() == 1 {
            return Ok(vec![Withdrawn::Released]);
        }
        let answers = Reply::new(value)?.map(|answer| match reply::text(answer)?.as_str() {
            "r" => Ok(Withdrawn::Released),
            "q" => Ok(Withdrawn::LeftQueue),
            "g" => Ok(Withdrawn::AlreadyGone),
            _ => Err(unexpected()),
        });
        let answers: Vec<Withdrawn> = answers.collect::<Result<_>>()?;
        if answers.len() == claims.len() { Ok(answers) } else { Err(unexpected()) }
    }

    /// What one call may carry: on a Cluster, keys of one slot only.
    pub(crate) fn batches<'a>(&self, claims: &'a [Arc<Claim>]) -> impl Iterator<Item = &'a [Arc<Claim>]> {
        let one_server = !matches!(self.config.servers, crate::Servers::Cluster(_));
        claims.chunks(if one_server { self.profile.batch } else { 1 })
    }

    /// Adds the keys of each claim to a command.
    pub(crate) fn add_keys(&self, command: &mut redis::Cmd, claims: &[Arc<Claim>]) {
        for claim in claims {
            self.layout.keys(&claim.resource).add_to(command);
        }
    }

    fn add_claims(&self, command: &mut redis::Cmd, claims: &[Arc<Claim>]) {
        self.add_keys(command, claims);
        for claim in claims {
            command.arg(claim.id.to_string()).arg(ttl_millis(claim));
        }
    }

    pub(crate) async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.check_key(resource)?;
        let call = self.scripts.evict.call(KEYS, |command| {
            self.layout.keys(resource).add_to(command);
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

/// The answers of all batches, in order. Not all batches at once: a Cluster has one per claim.
async fn all<T>(mut batches: Vec<impl Future<Output = Result<Vec<T>>>>) -> Result<Vec<T>> {
    const AT_ONCE: usize = 16;
    if batches.len() == 1 {
        return batches.remove(0).await;
    }
    let answers: Vec<Vec<T>> = stream::iter(batches).buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}
