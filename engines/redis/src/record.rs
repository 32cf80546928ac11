use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use palisade_core::{Claim, ClaimId, ClaimView, Error, ErrorKind, Family, Mode, Owner, Result, Token, Ttl};
use parking_lot::Mutex;

/// Writes what is stored of claims.
///
/// Most claims of a client differ in little but the moment, so what was written for the last one is kept.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<Option<Arc<Written>>>);

#[derive(Debug)]
struct Written {
    owner: Arc<Owner>,
    mode: Mode,
    ttl: Ttl,
    family: Family,
    /// What stands before the floor, and after it.
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Records {
    /// What is stored of a claim behind its token: ` SLOT SINCE MODE SLOTS TTL CLIENT FLOOR TAIL`, of which
    /// scripts read all but the tail. It was made now by this host's clock, which is for people to read only.
    pub(crate) fn record(&self, claim: &Claim, client: &str) -> Vec<u8> {
        let mut record = Vec::new();
        self.add_record(&mut record, claim, client);
        record
    }

    /// Adds [`record`](Self::record) to what stands before it.
    pub(crate) fn add_record(&self, record: &mut Vec<u8>, claim: &Claim, client: &str) {
        let written = self.written(claim, client);
        let room = 64 + written.head.len() + written.tail.len() + claim.value.as_ref().map_or(0, Bytes::len);
        record.reserve(room);
        written.add_head(record);
        match claim.token_floor {
            None => record.push(b'-'),
            Some(floor) => record.extend_from_slice(itoa::Buffer::new().format(floor.get()).as_bytes()),
        }
        record.extend_from_slice(&written.tail);
        add_value(record, claim.value.as_ref());
    }

    /// What the records of all claims like this one have in common: what stands before the floor, and after it.
    pub(crate) fn parts(&self, claim: &Claim, client: &str) -> [Vec<u8>; 2] {
        let written = self.written(claim, client);
        let mut head = Vec::with_capacity(64 + written.head.len());
        written.add_head(&mut head);
        [head, written.tail.clone()]
    }

    fn written(&self, claim: &Claim, client: &str) -> Arc<Written> {
        let mut last = self.0.lock();
        if let Some(last) = &*last
            && Arc::ptr_eq(&last.owner, &claim.owner)
            && (last.mode, last.ttl, last.family) == (claim.mode, claim.ttl, claim.family)
        {
            return Arc::clone(last);
        }
        let (mode, of) = mode_code(claim.mode);
        let mut tail = b" ".to_vec();
        add_owner(&mut tail, claim.family, &claim.owner);
        let written = Arc::new(Written {
            owner: Arc::clone(&claim.owner),
            mode: claim.mode,
            ttl: claim.ttl,
            family: claim.family,
            head: format!(" {mode} {of} {} {client} ", ttl_millis(claim)).into_bytes(),
            tail,
        });
        *last = Some(Arc::clone(&written));
        written
    }
}

impl Written {
    fn add_head(&self, record: &mut Vec<u8>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        record.extend_from_slice(b" - ");
        record.extend_from_slice(itoa::Buffer::new().format(since).as_bytes());
        record.extend_from_slice(&self.head);
    }
}

/// Whether nothing sets the records of two claims apart but their floors.
pub(crate) fn are_alike(one: &Claim, other: &Claim) -> bool {
    let common = |claim: &Claim| (claim.mode, claim.ttl, claim.family, claim.will_wait);
    Arc::ptr_eq(&one.owner, &other.owner)
        && common(one) == common(other)
        && (one.value.is_none() && other.value.is_none())
        && one.token_floor.is_some() == other.token_floor.is_some()
}

/// Family, owner and value: `FAMILY LENGTH OWNER` and, if there is one, `=` and the value.
pub(crate) fn tail(family: Family, owner: &Owner, value: Option<&Bytes>) -> Vec<u8> {
    let mut tail = Vec::new();
    add_owner(&mut tail, family, owner);
    add_value(&mut tail, value);
    tail
}

fn add_owner(record: &mut Vec<u8>, family: Family, owner: &Owner) {
    let owner = serde_json::to_string(owner).expect("an owner is plain text and numbers");
    write!(record, "{} {} {owner}", family_code(family), owner.len()).expect("memory can be written to");
}

fn add_value(record: &mut Vec<u8>, value: Option<&Bytes>) {
    if let Some(value) = value {
        record.push(b'=');
        record.extend_from_slice(value);
    }
}

pub(crate) fn mode_code(mode: Mode) -> (char, u32) {
    match mode {
        Mode::Exclusive => ('x', 0),
        Mode::Shared => ('s', 0),
        Mode::Slot { of } => ('p', of),
    }
}

pub(crate) fn mode_of(code: &str, of: u32) -> Option<Mode> {
    match code {
        "x" => Some(Mode::Exclusive),
        "s" => Some(Mode::Shared),
        "p" => Some(Mode::Slot { of }),
        _ => None,
    }
}

/// The TTL in the server's unit, never shorter than it is.
pub(crate) fn ttl_millis(claim: &Claim) -> u64 {
    claim.ttl.as_duration().as_nanos().div_ceil(1_000_000) as u64
}

fn family_code(family: Family) -> char {
    match family {
        Family::Mutex => 'm',
        Family::Rw => 'r',
        Family::Permits => 'p',
        Family::Election => 'e',
    }
}

fn family_of(code: &str) -> Option<Family> {
    match code {
        "m" => Some(Family::Mutex),
        "r" => Some(Family::Rw),
        "p" => Some(Family::Permits),
        "e" => Some(Family::Election),
        _ => None,
    }
}

/// A claim as the scripts show it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) id: String,
    /// `TOKEN SLOT SINCE` and the record; empty for another client's lock.
    pub(crate) stored: Vec<u8>,
    pub(crate) left_millis: i64,
    pub(crate) holds: bool,
    /// The value of another client's lock.
    pub(crate) foreign: Option<Vec<u8>>,
}

impl Shown {
    /// The claim as seen at `now`, the server's time in milliseconds.
    pub(crate) fn view(&self, now: u64) -> Result<ClaimView> {
        match &self.foreign {
            Some(value) => self.foreign(value),
            None => self.own(now),
        }
        .ok_or_else(|| {
            let message =
                "what is stored of a claim cannot be read; another program's, or a newer version's?";
            Error::new(ErrorKind::Corrupt, message)
        })
    }

    fn own(&self, now: u64) -> Option<ClaimView> {
        let mut parts = self.stored.splitn(11, |byte| *byte == b' ');
        let mut next = || std::str::from_utf8(parts.next()?).ok();
        let (token, slot, since) = (next()?, next()?, next()?);
        let (mode, of, _ttl, _client, _floor) = (next()?, next()?, next()?, next()?, next()?);
        let (family, length) = (next()?, next()?);
        let (owner, value) = parts.next()?.split_at_checked(length.parse().ok()?)?;
        Some(ClaimView {
            claim: self.id.parse().ok()?,
            family: family_of(family)?,
            mode: mode_of(mode, of.parse().ok()?)?,
            slot: slot.parse().ok(),
            token: Token::new(token.parse().ok()?).filter(|_| self.holds),
            owner: Arc::new(serde_json::from_slice(owner).ok()?),
            value: value.strip_prefix(b"=").map(Bytes::copy_from_slice),
            age: Duration::from_millis(now.saturating_sub(since.parse().ok()?)),
            expires_in: self.left(),
        })
    }

    /// Another client's lock: all that is known is its value, which some fill with what helps people.
    fn foreign(&self, value: &[u8]) -> Option<ClaimView> {
        const SHOWN: usize = 80;
        let text: String = String::from_utf8_lossy(value)
            .chars()
            .map(|letter| if letter.is_control() { '\u{fffd}' } else { letter })
            .take(SHOWN)
            .collect();
        let owner = Owner {
            client: "another-client".to_owned(),
            host: String::new(),
            pid: 0,
            label: Some(match &*text {
                // What the scripts say of a key that they cannot read.
                "no string" | "no hash" => format!("not a Palisade client; what is at the key is {text}"),
                _ => format!("not a Palisade client; its value is {text:?}"),
            }),
            trace: None,
        };
        Some(ClaimView {
            claim: self.id.parse::<ClaimId>().ok()?,
            family: Family::Mutex,
            mode: Mode::Exclusive,
            slot: None,
            token: None,
            owner: Arc::new(owner),
            value: None,
            age: Duration::ZERO,
            expires_in: self.left(),
        })
    }

    fn left(&self) -> Option<Duration> {
        u64::try_from(self.left_millis).ok().map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Name, Ttl};

    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let owner = Arc::new(Owner { label: Some("a b = c\u{1f}é".into()), ..Owner::this_process() });
        let claim = Claim::new(Name::new("n").unwrap(), Mode::Slot { of: 3 }, Ttl::default(), owner)
            .family(Family::Election)
            .value(&b"\x00=\xff "[..]);
        let record = Records::default().record(&claim, "client");
        // As a script stores it, with a token and another slot.
        let stored = [b"42 1", record.strip_prefix(b" -").unwrap()].concat();
        let shown = Shown { id: claim.id.to_string(), stored, left_millis: 70, holds: true, foreign: None };
        let view = shown.view(u64::MAX).unwrap();
        assert_eq!((view.claim, view.family, view.mode), (claim.id, claim.family, claim.mode));
        assert_eq!((view.owner, view.value), (claim.owner, claim.value));
        assert_eq!((view.token, view.slot), (Token::new(42), Some(1)));
        assert_eq!(view.expires_in, Some(Duration::from_millis(70)));
    }

    #[test]
    fn nonsense_is_an_error_not_a_panic() {
        for stored in [&b""[..], b"1", b"1 - 2 x 0 5 c - m 900 {}", b"1 - 2 x 0 5 c - m 2 {}", b"\xff \xff"] {
            let shown = Shown {
                id: "x".into(),
                stored: stored.to_vec(),
                left_millis: -1,
                holds: true,
                foreign: None,
            };
            assert_eq!(shown.view(0).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
