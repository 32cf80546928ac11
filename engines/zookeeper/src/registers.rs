use bytes::Bytes;
use palisade_core::{
    Condition, Error, ErrorKind, Fence, MAX_VALUE_BYTES, Name, Raise, Reading, Result, Source,
    StoredRegister, Written,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::engine::Inner;
use crate::error::{Code, contended, refused};
use crate::proto::{Kind, agree, create, delete, get_data, set_data};
use crate::take::TRIES;

/// What a register's node begins with, as one line of JSON; the value follows.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Head {
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stamp: Option<u64>,
    /// Whether there is a value.
    value: bool,
    /// The node that holds the end of a value that is too long for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<String>,
    /// Slot, source and marks of each cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fence: Vec<(Option<u32>, String, [u64; 3])>,
}

/// A register as it was seen.
struct Seen {
    register: StoredRegister,
    /// How often its node was written; `None` if it is not there.
    written: Option<i32>,
    rest: Option<String>,
}

/// How much of a value its node holds: a server takes a little less than a mebibyte (jute.maxbuffer).
const IN_ONE: usize = 900 << 10;

/// A refusal of ours means that another's write came in between; so one of them gets on.
const CONTENDED: usize = 1000;

impl Inner {
    pub(crate) async fn read(&self, name: &Name, raise: Option<&Raise>) -> Result<Reading> {
        for _ in 0..TRIES {
            let mut seen = self.see(name).await?;
            let Some(raise) = raise else { return Ok(Reading::Fresh(seen.register.entry(0))) };
            let before = seen.register.fence.clone();
            let reading = seen.register.raise(0, raise)?;
            if seen.register.fence == before {
                return Ok(reading);
            }
            let data = store(&seen.register, seen.rest.as_deref());
            if self.store(name, &data, seen.written).await? {
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
    ) -> Result<Written> {
        if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            let message = format!("a value has at most {MAX_VALUE_BYTES} bytes");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut rest = None;
        for _ in 0..CONTENDED {
            let mut seen = self.see(name).await?;
            let before = seen.register.clone();
            let written = seen.register.write(0, value.cloned(), condition, None)?;
            if matches!(written, Written::Refused(_)) || seen.register == before {
                self.clear(rest).await;
                return Ok(written);
            }
            let same = seen.register.version == before.version;
            let long = seen.register.value.as_ref().filter(|value| !same && value.len() > IN_ONE);
            if let (Some(value), None) = (long, &rest) {
                rest = Some(self.store_rest(&value[IN_ONE..]).await?);
            }
            let kept = if same { &seen.rest } else { &rest };
            let data = store(&seen.register, kept.as_deref());
            if self.store(name, &data, seen.written).await? {
                self.clear(seen.rest.filter(|_| !same)).await;
                return Ok(written);
            }
        }
        Err(contended())
    }

    /// Stores a register, if it is still as it was seen.
    async fn store(&self, name: &Name, data: &[u8], written: Option<i32>) -> Result<bool> {
        let path = self.layout.register(name);
        let main = self.main();
        loop {
            let request = match written {
                Some(version) => set_data(&path, data, version),
                None => create(&path, data, Kind::Persistent, self.acl()),
            };
            return match main.ask(request).await?.code {
                Code::OK => Ok(true),
                Code::NO_NODE if written.is_none() => {
                    self.make(&main, &self.layout.registers(), Kind::Persistent).await?;
                    continue;
                }
                Code::BAD_VERSION | Code::NODE_EXISTS | Code::NO_NODE => Ok(false),
                code => Err(refused(code)),
            };
        }
    }

    /// Stores the end of a value, at a node of its own that nobody knows yet.
    async fn store_rest(&self, rest: &[u8]) -> Result<String> {
        let (folder, name) = (self.layout.rests(), Uuid::new_v4().simple().to_string());
        let path = format!("{folder}/{name}");
        let main = self.main();
        for _ in 0..TRIES {
            match main.ask(create(&path, rest, Kind::Persistent, self.acl())).await?.code {
                Code::OK | Code::NODE_EXISTS => return Ok(name),
                Code::NO_NODE => self.make(&main, &folder, Kind::Persistent).await?,
                code => return Err(refused(code)),
            }
        }
        Err(contended())
    }

    /// Deletes the end of a value that was replaced. What is left of it does no harm.
    async fn clear(&self, rest: Option<String>) {
        if let Some(rest) = rest {
            let _ = self.main().ask(delete(&format!("{}/{rest}", self.layout.rests()))).await;
        }
    }

    /// A register as it is: whatever was acknowledged before is seen.
    async fn see(&self, name: &Name) -> Result<Seen> {
        let path = self.layout.register(name);
        let main = self.main();
        for _ in 0..CONTENDED {
            let conn = main.conn().await?;
            // A leader that was replaced would let a server catch up with itself; it gets nothing agreed upon.
            let (agreed, look) = (conn.send(agree()), conn.send(get_data(&path, false)));
            main.answer(agreed).await?.ok()?;
            let Some(node) = main.answer(look).await?.node()? else {
                return Ok(Seen { register: StoredRegister::default(), written: None, rest: None });
            };
            let (head, mut value) = parse(&node.data)?;
            if let Some(rest) = &head.rest {
                let path = format!("{}/{rest}", self.layout.rests());
                // If it is no more, another value is there by now.
                let Some(rest) = main.ask(get_data(&path, false)).await?.node()? else { continue };
                value = [value, rest.data].concat().into();
            }
            let cells =
                head.fence.into_iter().map(|(slot, source, marks)| (slot, Source::new(source), marks));
            let register = StoredRegister {
                value: head.value.then_some(value),
                version: head.version,
                stamp: head.stamp,
                fence: Fence::from_cells(cells),
                expires: None,
            };
            return Ok(Seen { register, written: Some(node.stat.version), rest: head.rest });
        }
        Err(contended())
    }
}

/// A register as its node holds it.
fn store(register: &StoredRegister, rest: Option<&str>) -> Vec<u8> {
    let cells = register.fence.to_cells();
    let head = Head {
        version: register.version,
        stamp: register.stamp,
        value: register.value.is_some(),
        rest: rest.map(str::to_owned),
        fence: cells.map(|(slot, source, marks)| (slot, source.as_str().to_owned(), marks)).collect(),
    };
    let mut bytes = serde_json::to_vec(&head).expect("a head is plain text and numbers");
    bytes.push(b'\n');
    if let Some(value) = &register.value {
        let end = if rest.is_some() { IN_ONE } else { value.len() };
        bytes.extend_from_slice(&value[..end.min(value.len())]);
    }
    bytes
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
        let (head, value) = parse(&store(&register, None).into()).unwrap();
        assert_eq!((head.version, head.stamp, head.value), (0, Some(u64::MAX), true));
        assert_eq!(Some(value), register.value);
        let cells = head.fence.into_iter().map(|(slot, source, marks)| (slot, Source::new(source), marks));
        assert_eq!(Fence::from_cells(cells), register.fence);
        assert!(parse(&Bytes::from_static(b"hello")).is_err());
    }

    #[test]
    fn a_long_value_leaves_room_for_its_head() {
        let value = Some(Bytes::from(vec![7; MAX_VALUE_BYTES]));
        let register = StoredRegister { value, ..StoredRegister::default() };
        assert_eq!(parse(&store(&register, Some("r")).into()).unwrap().1.len(), IN_ONE);
        const { assert!(MAX_VALUE_BYTES - IN_ONE < IN_ONE) };
    }
}
