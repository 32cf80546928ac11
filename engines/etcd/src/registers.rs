use std::time::Duration;

use bytes::Bytes;
use palisade_core::{
    Condition, Error, ErrorKind, Fence, MAX_VALUE_BYTES, Name, Raise, Reading, Result, Source,
    StoredRegister, Written,
};
use serde::{Deserialize, Serialize};

use crate::engine::Inner;
use crate::error::contended;
use crate::proto::{LeaseRequest, LeaseResponse, TimeToLiveRequest, TimeToLiveResponse, path};
use crate::take::TRIES;
use crate::txn::{Answers, Txn, delete, get, put, written_at};

/// What a register's key begins with, as one line of JSON; the value follows, unless it expires.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Head {
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stamp: Option<u64>,
    /// Whether there is a value, here or at a key of its own.
    value: bool,
    /// The lease that the value is on, at a key of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<i64>,
    /// Slot, source and marks of each cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fence: Vec<(Option<u32>, String, [u64; 3])>,
}

/// A register as it was seen.
struct Seen {
    register: StoredRegister,
    /// The lease of a value that expires, or has.
    lease: Option<i64>,
    /// When its two keys were written last; 0 for one that is not there.
    written: [i64; 2],
    /// What `StoredRegister` is to take for now: expiry is the server's to tell.
    now: u64,
}

/// What of a register a write has changed.
#[derive(Debug, Clone, Copy)]
enum Stored {
    Fence,
    /// The value, too, which is on this lease if it expires.
    Value {
        lease: Option<i64>,
    },
}

impl Inner {
    pub(crate) async fn read(&self, name: &Name, raise: Option<&Raise>) -> Result<Reading> {
        for _ in 0..TRIES {
            let mut seen = self.see(name, true).await?;
            let Some(raise) = raise else { return Ok(Reading::Fresh(seen.register.entry(seen.now))) };
            let before = seen.register.fence.clone();
            let reading = seen.register.raise(seen.now, raise)?;
            if seen.register.fence == before {
                return Ok(reading);
            }
            // An expired value stays one: only the fence is written.
            let key = self.layout.register(name);
            let head = store(&seen.register, seen.lease);
            let txn = self.unchanged(name, &seen).then(put(key, head, 0));
            if self.link.txn(txn).await?.value.succeeded {
                return Ok(reading);
            }
        }
        Err(contended())
    }

    /// Writes a register; `None` deletes it.
    pub(crate) async fn write(
        &self,
        name: &Name,
        value: Option<&Bytes>,
        condition: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            let message = format!("a value has at most {MAX_VALUE_BYTES} bytes");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut lease = None;
        for _ in 0..CONTENDED {
            let mut seen = self.see(name, false).await?;
            let before = seen.register.clone();
            let expires = expires_in.map(|_| u64::MAX);
            let written = seen.register.write(seen.now, value.cloned(), condition, expires)?;
            if matches!(written, Written::Refused(_)) {
                return Ok(self.refused_as_seen(name, written).await);
            }
            if seen.register == before {
                return Ok(written);
            }
            if let (Some(after), None) = (expires_in, lease) {
                lease = Some(self.grant(whole_seconds(after)).await?.id);
            }
            let same = seen.register.version == before.version;
            let changed = if same { Stored::Fence } else { Stored::Value { lease } };
            if self.store_if_unchanged(name, &seen, changed).await? {
                self.revoke(seen.lease.filter(|_| !same)).await;
                return Ok(written);
            }
        }
        Err(contended())
    }

    /// A refusal shows what is there; how long that stays is asked for only then.
    async fn refused_as_seen(&self, name: &Name, written: Written) -> Written {
        let Written::Refused(mut refusal) = written else { return written };
        if refusal.current.expires_in.is_some() {
            refusal.current.expires_in = match self.see(name, true).await {
                Ok(seen) => seen.register.entry(seen.now).expires_in,
                Err(_) => None,
            };
        }
        Written::Refused(refusal)
    }

    /// Stores what a write made of a register, if it is still as it was seen.
    async fn store_if_unchanged(&self, name: &Name, seen: &Seen, changed: Stored) -> Result<bool> {
        let (key, apart) = (self.layout.register(name), self.layout.value(name));
        let mut txn = self.unchanged(name, seen);
        txn = match (changed, &seen.register.value) {
            (Stored::Fence, _) => txn.then(put(key, store(&seen.register, seen.lease), 0)),
            (Stored::Value { lease: Some(lease) }, Some(value)) => {
                let head = store(&seen.register, Some(lease));
                txn.then(put(key, head, 0)).then(put(apart, value.clone(), lease))
            }
            (Stored::Value { .. }, _) => {
                let txn = txn.then(put(key, store(&seen.register, None), 0));
                if seen.written[1] == 0 { txn } else { txn.then(delete(apart)) }
            }
        };
        Ok(self.link.txn(txn).await?.value.succeeded)
    }

    fn unchanged(&self, name: &Name, seen: &Seen) -> Txn {
        let [register, value] = seen.written;
        Txn::new()
            .when(written_at(self.layout.register(name), register))
            .when(written_at(self.layout.value(name), value))
    }

    /// A register as it is. How long an expiring value stays is asked for if `timed`.
    async fn see(&self, name: &Name, timed: bool) -> Result<Seen> {
        let look = Txn::new().then(get(self.layout.register(name))).then(get(self.layout.value(name)));
        let mut answers = Answers::of(self.link.look(look).await?.value);
        let (stored, apart) = (answers.key()?, answers.key()?);
        let written = [&stored, &apart].map(|key| key.as_ref().map_or(0, |key| key.mod_revision));
        let Some(stored) = stored else {
            return Ok(Seen { register: StoredRegister::default(), lease: None, written, now: 0 });
        };
        let (head, inside) = parse(&stored.value)?;
        let value = match head.lease {
            Some(_) => {
                apart.as_ref().map(|apart| apart.value.clone()).or_else(|| head.value.then(Bytes::new))
            }
            None => head.value.then_some(inside),
        };
        // A value whose key is gone has expired: it went away at 0, and it is 1 now.
        let (expires, now) = match (head.lease, &apart) {
            (Some(_), None) if head.value => (Some(0), 1),
            (Some(lease), Some(_)) if timed => (Some(self.left(lease).await?), 0),
            (Some(_), Some(_)) => (Some(u64::MAX), 0),
            _ => (None, 0),
        };
        let cells = head.fence.into_iter().map(|(slot, source, marks)| (slot, Source::new(source), marks));
        let register = StoredRegister {
            value,
            version: head.version,
            stamp: head.stamp,
            fence: Fence::from_cells(cells),
            expires,
        };
        Ok(Seen { register, lease: head.lease, written, now })
    }

    /// How many nanoseconds a lease has left, at least one.
    async fn left(&self, lease: i64) -> Result<u64> {
        let request = TimeToLiveRequest { id: lease, keys: false };
        let answer = self.link.call::<_, TimeToLiveResponse>(path::LEASE_TIME_TO_LIVE, request).await?;
        let seconds = u64::try_from(answer.value.ttl).unwrap_or(0);
        Ok(seconds.saturating_mul(1_000_000_000).max(1))
    }

    /// Ends the lease of a value that was replaced. What is left of it does no harm.
    async fn revoke(&self, lease: Option<i64>) {
        if let Some(id) = lease {
            let request = LeaseRequest { id };
            let _ = self.link.call::<_, LeaseResponse>(path::LEASE_REVOKE, request).await;
        }
    }
}

/// A refusal of ours means that another's write came in between; so one of them gets on.
const CONTENDED: usize = 1000;

fn whole_seconds(after: Duration) -> u64 {
    (after.as_nanos().div_ceil(1_000_000_000) as u64).max(1)
}

/// A register as it is stored, without a value that is on a lease.
fn store(register: &StoredRegister, lease: Option<i64>) -> Bytes {
    let cells = register.fence.to_cells();
    let head = Head {
        version: register.version,
        stamp: register.stamp,
        value: register.value.is_some(),
        lease,
        fence: cells.map(|(slot, source, marks)| (slot, source.as_str().to_owned(), marks)).collect(),
    };
    let mut bytes = serde_json::to_vec(&head).expect("a head is plain text and numbers");
    bytes.push(b'\n');
    if let (Some(value), None) = (&register.value, lease) {
        bytes.extend_from_slice(value);
    }
    bytes.into()
}

fn parse(stored: &Bytes) -> Result<(Head, Bytes)> {
    let corrupt = || {
        let message = "what is stored of a register cannot be read; another program's, or a newer version's?";
        Error::new(ErrorKind::Corrupt, message)
    };
    let end = stored.iter().position(|byte| *byte == b'\n').ok_or_else(corrupt)?;
    let head = serde_json::from_slice(&stored[..end]).map_err(|error| corrupt().because(error))?;
    Ok((head, stored.slice(end + 1..)))
}

#[cfg(test)]
mod tests {
    use palisade_core::{FencingToken, Token, TokenKind};

    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let mut register = StoredRegister { stamp: Some(u64::MAX), ..StoredRegister::default() };
        let token = FencingToken {
            token: Token::new(7).unwrap(),
            kind: TokenKind::Shared,
            slot: Some(2),
            source: Source::new("a \n\" b"),
        };
        register.fence.record_write(&token);
        register.value = Some(Bytes::from_static(b"\n{}\xff"));
        let (head, value) = parse(&store(&register, None)).unwrap();
        assert_eq!((head.version, head.stamp, head.value), (0, Some(u64::MAX), true));
        assert_eq!(Some(value), register.value);
        let cells = head.fence.into_iter().map(|(slot, source, marks)| (slot, Source::new(source), marks));
        assert_eq!(Fence::from_cells(cells), register.fence);
        assert!(parse(&Bytes::from_static(b"hello")).is_err());
    }
}
