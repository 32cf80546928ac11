//! What servers say, in their own words.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use palisade_core::{Claim, ClaimId, ClaimView, Family, Mode, Owner, Result, StoredRegister, Token};
use serde::Deserialize;

use crate::error::unexpected;

/// One row of an answer: what became of one claim.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Which of those asked about, from 1.
    pub(crate) at: usize,
    pub(crate) verdict: u8,
    pub(crate) seq: Option<i64>,
    pub(crate) token: Option<i64>,
    pub(crate) slot: Option<i32>,
    pub(crate) remains: Option<i64>,
    pub(crate) look: Option<i64>,
    pub(crate) ahead: Option<i32>,
    pub(crate) note: Option<String>,
}

/// A claim that is to leave.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) claim: Arc<Claim>,
    /// Whether it may be on its way more than once.
    pub(crate) doubtful: bool,
    pub(crate) seq: Option<i64>,
}

#[cfg(feature = "postgres")]
impl Answer {
    /// Reads an answer about one claim: `VERDICT|SEQ|TOKEN|SLOT|REMAINS|LOOK|AHEAD|NOTE`, what there is none of
    /// being empty.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(8, '|');
        let verdict = *parts.next()?.as_bytes().first()?;
        let [seq, token, slot, remains, look, ahead, note] = std::array::from_fn(|_| parts.next());
        let number = |part: Option<&str>| part.and_then(|part| part.parse::<i64>().ok());
        let small = |part: Option<&str>| part.and_then(|part| part.parse::<i32>().ok());
        Some(Self {
            at: 1,
            verdict,
            seq: number(seq),
            token: number(token),
            slot: small(slot),
            remains: number(remains),
            look: number(look),
            ahead: small(ahead),
            note: Some(note?).filter(|note| !note.is_empty()).map(ToOwned::to_owned),
        })
    }
}

/// A register as it is stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    /// What it was at when it was read; 0 if it was not there.
    pub(crate) revision: i64,
    pub(crate) register: StoredRegister,
    /// The server's time in nanoseconds.
    pub(crate) now: u64,
}

/// How to ask for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    NoWait = 0,
    Wait = 1,
    /// Only if it is known.
    Known = 2,
}

/// A time as servers give it. What has passed is now.
pub(crate) fn micros(number: Option<i64>) -> Duration {
    Duration::from_micros(number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0))
}

/// A claim's TTL as servers are given it.
pub(crate) fn ttl(claim: &Claim) -> i64 {
    in_micros(claim.ttl.as_duration())
}

pub(crate) fn in_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// A number as servers keep it. Times and tokens stay far below the limit.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn mode_columns(mode: Mode) -> (i16, i32) {
    match mode {
        Mode::Exclusive => (0, 0),
        Mode::Shared => (1, 0),
        Mode::Slot { of } => (2, i32::try_from(of).unwrap_or(i32::MAX)),
    }
}

pub(crate) fn mode(mode: i32, of: i32) -> Option<Mode> {
    match mode {
        0 => Some(Mode::Exclusive),
        1 => Some(Mode::Shared),
        2 => Some(Mode::Slot { of: of.try_into().ok()? }),
        _ => None,
    }
}

pub(crate) fn family_column(family: Family) -> i16 {
    match family {
        Family::Mutex => 0,
        Family::Rw => 1,
        Family::Permits => 2,
        Family::Election => 3,
    }
}

pub(crate) fn family(number: i16) -> Option<Family> {
    Some(match number {
        0 => Family::Mutex,
        1 => Family::Rw,
        2 => Family::Permits,
        3 => Family::Election,
        _ => return None,
    })
}

/// A claim as the view `shown` has it.
#[derive(Debug, Deserialize)]
pub(crate) struct Shown {
    id: String,
    family: i16,
    mode: i32,
    slots: i32,
    held: bool,
    token: i64,
    slot: Option<u32>,
    age: i64,
    expires_in: i64,
    owner: String,
    value: Option<String>,
}

impl Shown {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| unexpected().because(error))
    }

    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>> {
        serde_json::from_str(text).map_err(|error| unexpected().because(error))
    }

    pub(crate) fn view(&self) -> Result<ClaimView> {
        let owner: Owner = serde_json::from_str(&self.owner).map_err(|error| unexpected().because(error))?;
        let token = u64::try_from(self.token).ok().and_then(Token::new).filter(|_| self.held);
        Ok(ClaimView {
            claim: self.id.parse::<ClaimId>().map_err(|_| unexpected())?,
            family: family(self.family).ok_or_else(unexpected)?,
            mode: mode(self.mode, self.slots).ok_or_else(unexpected)?,
            slot: self.slot,
            token,
            owner: Arc::new(owner),
            value: self.value.as_deref().map(bytes_of_hex).transpose()?,
            age: micros(Some(self.age)),
            expires_in: Some(micros(Some(self.expires_in))),
        })
    }
}

/// Bytes from hexadecimal digits, of either case.
pub(crate) fn bytes_of_hex(text: &str) -> Result<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    bytes.collect::<Option<Vec<u8>>>().map(Bytes::from).ok_or_else(unexpected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_one_claim_are_read() {
        let said = Answer::parse("q|7|||100|50|2|evicted: a|b").unwrap();
        assert_eq!((said.verdict, said.seq, said.token, said.slot), (b'q', Some(7), None, None));
        assert_eq!((said.remains, said.look, said.ahead), (Some(100), Some(50), Some(2)));
        assert_eq!(said.note.as_deref(), Some("evicted: a|b"));
        assert_eq!(Answer::parse("r|||||||").unwrap().note, None);
        assert!(Answer::parse("").is_none() && Answer::parse("r|").is_none());
    }

    #[test]
    fn what_is_shown_is_read() {
        let text = r#"[{"id":"11111111-1111-1111-1111-111111111111","family":2,"mode":2,"slots":3,"held":true,"token":7,
            "slot":1,"age":-5,"expires_in":2000000,"owner":"{\"client\":\"c\",\"host\":\"h\",\"pid\":1}","value":"00ff"}]"#;
        let view = Shown::parse_all(text).unwrap()[0].view().unwrap();
        assert_eq!((view.mode, view.slot, view.token), (Mode::Slot { of: 3 }, Some(1), Token::new(7)));
        assert_eq!(view.value.as_deref(), Some(&[0, 255][..]));
        assert_eq!((view.age, view.expires_in), (Duration::ZERO, Some(Duration::from_secs(2))));
        assert!(bytes_of_hex("0").is_err() && bytes_of_hex("zz").is_err());
    }
}
