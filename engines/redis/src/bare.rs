//! Taking a free lock of a quorum without a script.
//!
//! A script costs a server far more than a command where many servers share a processor, whose caches hold none of
//! Lua then: of a quorum of five on one, a quarter of what a lock takes. So a claim whose token is known beforehand,
//! because its floor is the last one made here, is written by a bare `SET … NX`, as other clients do, with
//! everything in it that the script would write. What comes after it in the same message makes sure that the script
//! would have done the same:
//!
//! * `INCR` of the tokens comes *after* the lock is had, so that no earlier holder has a greater one, if it comes to the
//!   number that was written.
//! * `EXISTS palisade:m` tells whether somebody may wait here, or whether this claim must not come in.
//!
//! If either says no, the lock is given back, and asked for by the script. If no answer comes, the claim may be there: then
//! the script gives it a new token, above all that were made. (It may have come in ahead of who waits; a quorum promises no
//! order.)
//!
//! A script refuses a claim that was withdrawn before it arrived, over another connection. A bare command cannot; so
//! each connection ends the one before it at the server (`crate::here`), and where it may not, there are scripts only.
//!
//! Without a floor, which means without a quorum, the script is asked: on one server it is one command instead of three, and
//! hardly slower.

use std::sync::Arc;

use palisade_core::{BootInstant, Claim, Error, Mode, Result, Token};
use redis::{RedisResult, Value};

use crate::config::Dialect;
use crate::dial::Line;
use crate::engine::Inner;
use crate::error::unexpected;
use crate::keys::{Given, TOKENS};
use crate::link::InUse;
use crate::record::ttl_millis;
use crate::verbs::{Said, granted_alone, marked};

impl Inner {
    /// Tries to take a lock for a claim that was never asked for. `None` if the script must be asked.
    ///
    /// # Errors
    /// Of unknown effect, unless the server refused the lock.
    pub(crate) async fn take_bare(&self, claim: &Arc<Claim>) -> Result<Option<Said>> {
        let Some(floor) = claim.token_floor else { return Ok(None) };
        let plain = self.config.dialect == Dialect::Plain && claim.mode == Mode::Exclusive;
        if !plain || self.layout.given(&claim.resource) != Given::Lock {
            return Ok(None);
        }
        let in_use = self.link.line().await?;
        let Some(token) = in_use.counter.next(floor) else { return Ok(None) };
        self.claims.sent_bare(claim.id, token);
        let (bare, sent) = self.send_bare(&in_use, claim, token).await?;
        if let Err(refused) = &bare.taken {
            self.claims.is_not_bare(claim.id);
            return self.link.judge(in_use.number, Err(refused.clone()));
        }
        if matches!(bare, Bare { taken: Ok(true), count: Some(count), waited_for: false } if count == token) {
            in_use.counter.made(token, false);
            let said = granted_alone(claim, token, sent);
            self.note(claim, &said);
            return Ok(Some(said));
        }
        in_use.counter.was_in_vain();
        match bare.taken {
            // Also if only its token is wrong: where a withdrawal came in between, this finds nothing, and buries the
            // claim, so that the script refuses it.
            Ok(true) => Box::pin(self.give_back(claim)).await?,
            _ => self.claims.is_not_bare(claim.id),
        }
        Ok(None)
    }

    async fn send_bare(&self, in_use: &InUse, claim: &Claim, token: Token) -> Result<(Bare, BootInstant)> {
        let Line::Plain(wire) = &in_use.line else { return Err(unexpected()) };
        let mut value = Vec::with_capacity(256);
        value.extend_from_slice(&marked(claim.id, b' '));
        value.extend_from_slice(itoa::Buffer::new().format(token.get()).as_bytes());
        self.records.add_record(&mut value, claim, &self.client);
        let mut taking = redis::Cmd::with_capacity(6, 512);
        taking.arg("SET").arg(&*self.layout.lock(&claim.resource)).arg(value);
        taking.arg("NX").arg("PX").arg(ttl_millis(claim));
        let write = |unsent: &mut Vec<u8>| {
            taking.write_packed_command(unsent);
            unsent.extend_from_slice(COUNT_AND_LOOK);
        };
        let (answers, sent) = self.link.packed(in_use.number, wire, 3, write).await?;
        let answers: [Value; 3] =
            answers.try_into().map_err(|_: Vec<Value>| unexpected().with_unknown_effect())?;
        Ok((Bare::of(answers), sent))
    }

    /// Gives back what was taken ahead of others. They are let in by the script that is asked next, or when they look.
    pub(crate) async fn give_back(&self, claim: &Claim) -> Result<()> {
        let call = self.call_on(&self.scripts.withdraw, [&claim.resource].into_iter(), |command| {
            command.arg(&marked(claim.id, b' ')[..]).arg(ttl_millis(claim));
        });
        self.link.call(&call).await.map_err(Error::with_unknown_effect)?;
        self.claims.is_not_bare(claim.id);
        Ok(())
    }

    /// The claim as the script must be asked for it: one that was sent by bare commands whose answer is not known needs a
    /// token above all that were made.
    pub(crate) async fn above_bare(&self, claim: &Arc<Claim>, written: Token) -> Result<Arc<Claim>> {
        let Value::Int(made) = self.link.command(redis::cmd("INCR").arg(TOKENS)).await?.value else {
            return Err(unexpected());
        };
        let mut above = (**claim).clone();
        above.token_floor = claim.token_floor.max(Some(written)).max(token(made));
        Ok(Arc::new(above))
    }
}

fn token(count: i64) -> Option<Token> {
    u64::try_from(count).ok().and_then(Token::new)
}

/// `INCR palisade:t` and `EXISTS palisade:m`, as they are sent.
const COUNT_AND_LOOK: &[u8] =
    b"*2\r\n$4\r\nINCR\r\n$10\r\npalisade:t\r\n*2\r\n$6\r\nEXISTS\r\n$10\r\npalisade:m\r\n";

/// What the three commands said.
#[derive(Debug)]
struct Bare {
    taken: RedisResult<bool>,
    /// None if it could not be counted.
    count: Option<Token>,
    /// Somebody waits, or must not come in: perhaps here. Or nobody knows.
    waited_for: bool,
}

impl Bare {
    fn of([set, count, notes]: [Value; 3]) -> Self {
        let count = if let Value::Int(count) = count { token(count) } else { None };
        Self {
            taken: set.extract_error().map(|set| set == Value::Okay),
            count,
            // What cannot be counted is given back: the script says why.
            waited_for: count.is_none() || notes != Value::Int(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_keys() {
        let mut packed = redis::cmd("INCR").arg(TOKENS).get_packed_command();
        packed.extend(redis::cmd("EXISTS").arg("palisade:m").get_packed_command());
        assert_eq!(packed, COUNT_AND_LOOK);
    }

    #[test]
    fn only_what_was_counted_and_nobody_waits_for_is_kept() {
        let of = |set, count, notes| {
            let bare = Bare::of([set, count, notes]);
            (bare.taken.ok(), bare.count.map(Token::get), bare.waited_for)
        };
        let refused = || redis::parse_redis_value(b"-OOM no memory\r\n").unwrap();
        assert_eq!(of(Value::Okay, Value::Int(7), Value::Int(0)), (Some(true), Some(7), false));
        assert_eq!(of(Value::Okay, Value::Int(7), Value::Int(1)), (Some(true), Some(7), true));
        assert_eq!(of(Value::Nil, Value::Int(7), Value::Int(0)), (Some(false), Some(7), false));
        assert_eq!(of(Value::Okay, refused(), Value::Int(0)), (Some(true), None, true));
        assert_eq!(of(refused(), Value::Int(7), Value::Int(0)), (None, Some(7), false));
    }
}
