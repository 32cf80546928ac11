use std::time::Duration;

use bytes::Bytes;
use palisade_core::{
    Condition, Entry, Error, ErrorKind, Fence, FencingToken, MAX_VALUE_BYTES, Name, Raise, Reading, Refusal,
    RefusalReason, Result, Source, StoredRegister, Token, TokenKind, Version, Written,
};

use crate::engine::Inner;
use crate::error::unexpected;
use crate::reply::{self, Reply};

/// What a script says about a register: a verdict, and what is there.
struct Verdict {
    word: String,
    current: String,
    entry: Entry,
}

impl Inner {
    pub(crate) async fn read(&self, register: &Name, raise: Option<&Raise>) -> Result<Reading> {
        let call = self.scripts.read.call(1, |command| {
            command.arg(self.layout.register(register));
            if let Some(raise) = raise {
                command.arg(&token_args(&raise.token)[..]).arg(u8::from(raise.rebase));
            }
        });
        let verdict = verdict(Reply::new(self.link.call(&call).await?.value)?)?;
        match verdict.word.as_str() {
            "" => Ok(Reading::Fresh(verdict.entry)),
            _ => Ok(Reading::Refused(verdict.refusal(raise.map(|raise| &raise.token))?)),
        }
    }

    /// Writes a register; `None` deletes it.
    pub(crate) async fn write(
        &self,
        register: &Name,
        value: Option<&Bytes>,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            let message = format!("a value has at most {MAX_VALUE_BYTES} bytes");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let call = self.scripts.write.call(1, |command| {
            let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            command.arg(self.layout.register(register));
            command.arg(u8::from(value.is_some())).arg(value.map_or(&[][..], |value| &value[..]));
            command.arg(u8::from(condition.absent));
            command.arg(text(condition.version.map(Version::get))).arg(text(condition.stamp));
            command.arg(text(expires_in.map(|after| after.as_micros() as u64)));
            let token = condition.token.as_ref().map(token_args).unwrap_or_default();
            command.arg(&token[..]).arg(u8::from(condition.strict));
        });
        let verdict = verdict(Reply::new(self.link.call(&call).await?.value)?)?;
        match verdict.word.as_str() {
            "done" => Ok(Written::Done(Version::new(verdict.current.parse().map_err(|_| unexpected())?))),
            _ => Ok(Written::Refused(verdict.refusal(condition.token.as_ref())?)),
        }
    }
}

/// A token as the scripts read it: number, kind, slot and source.
pub(crate) fn token_args(token: &FencingToken) -> [String; 4] {
    let kind = match token.kind {
        TokenKind::Exclusive => "x",
        TokenKind::Shared => "s",
    };
    let slot = token.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
    [token.token.to_string(), kind.to_owned(), slot, token.source.to_string()]
}

impl Verdict {
    fn refusal(self, token: Option<&FencingToken>) -> Result<Refusal> {
        let number = || self.current.parse::<u64>().map_err(|_| unexpected());
        let mark = || Token::new(number()?).ok_or_else(unexpected);
        let reason = match self.word.as_str() {
            "exists" => RefusalReason::Exists,
            "version" => RefusalReason::OtherVersion,
            "stale" => RefusalReason::StaleToken { current: mark()? },
            "spent" => RefusalReason::SpentToken { current: mark()? },
            "stamp" => RefusalReason::NotNewer { current: number()? },
            "source" => {
                let yours = token.map_or("nobody", |token| token.source.as_str());
                return Err(Error::new(
                    ErrorKind::SourceMismatch,
                    format!(
                        "this fence follows tokens of {}, the token comes from {yours}; the two do not compare until the fence is rebased",
                        self.current
                    ),
                ));
            }
            _ => return Err(unexpected()),
        };
        Ok(Refusal { reason, current: self.entry })
    }
}

fn verdict(mut reply: Reply) -> Result<Verdict> {
    let (word, current) = (reply.text()?, reply.text()?);
    let (seconds, micros): (u64, u64) = (reply.parsed()?, reply.parsed()?);
    let stored = stored(Reply::new(reply.next()?)?)?;
    // What is kept in microseconds is told in nanoseconds.
    let now = (seconds * 1_000_000 + micros) * 1000;
    Ok(Verdict { word, current, entry: stored.entry(now) })
}

fn stored(mut fields: Reply) -> Result<StoredRegister> {
    let mut register = StoredRegister::default();
    let mut cells = Vec::new();
    while !fields.is_over() {
        let field = fields.text()?;
        match field.as_str() {
            "v" => register.value = Some(fields.bytes()?.into()),
            "n" => register.version = fields.parsed()?,
            "s" => register.stamp = Some(fields.parsed()?),
            "x" => register.expires = Some(fields.parsed::<u64>()?.saturating_mul(1000)),
            other => cells.push(cell(other, &reply::text(fields.next()?)?).ok_or_else(unexpected)?),
        }
    }
    register.fence = Fence::from_cells(cells);
    Ok(register)
}

fn cell(field: &str, text: &str) -> Option<(Option<u32>, Source, [u64; 3])> {
    let slot = match field.strip_prefix('f')? {
        "-" => None,
        slot => Some(slot.parse().ok()?),
    };
    let mut parts = text.splitn(4, ' ');
    let mut number = || parts.next()?.parse().ok();
    let marks = [number()?, number()?, number()?];
    Some((slot, Source::new(parts.next()?), marks))
}
