use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use palisade_core::{Claim, ClaimId, ClaimView, Error, ErrorKind, Family, Mode, Owner, Result, Token};
use serde::{Deserialize, Serialize};

/// What is stored of a claim, as JSON: people look at it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// Which client made it, and hears of its end.
    pub(crate) client: String,
    family: Family,
    mode: StoredMode,
    /// The slot that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<u32>,
    /// A token that is not the create revision, because a quorum counted further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// Whether the lock key's value is one: an empty value is not the same as none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) value: bool,
    /// When it was made, by its host's clock: for people to read only.
    since: u64,
    #[serde(with = "shared")]
    owner: Arc<Owner>,
}

/// An owner is shared by all claims of a client.
mod shared {
    use std::sync::Arc;

    use palisade_core::Owner;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(owner: &Arc<Owner>, to: S) -> Result<S::Ok, S::Error> {
        (**owner).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Owner>, D::Error> {
        Owner::deserialize(from).map(Arc::new)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredMode {
    Exclusive,
    Shared,
    Slot(u32),
}

impl Record {
    pub(crate) fn of(claim: &Claim, client: &str, slot: Option<u32>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        Self {
            id: claim.id.to_string(),
            client: client.to_owned(),
            family: claim.family,
            mode: stored(claim.mode),
            slot,
            token: None,
            value: claim.value.is_some(),
            since,
            owner: Arc::clone(&claim.owner),
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| {
            let message =
                "what is stored of a claim cannot be read; another program's, or a newer version's?";
            Error::new(ErrorKind::Corrupt, message).because(error)
        })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record is plain text and numbers").into()
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.mode {
            StoredMode::Exclusive => Mode::Exclusive,
            StoredMode::Shared => Mode::Shared,
            StoredMode::Slot(of) => Mode::Slot { of },
        }
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = stored(mode);
    }

    pub(crate) fn is(&self, claim: ClaimId) -> bool {
        self.id.parse() == Ok(claim)
    }

    /// The claim as seen from outside. `token` if it holds.
    pub(crate) fn view(&self, value: &Bytes, mode: Mode, token: Option<Token>) -> Result<ClaimView> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let claim = self.id.parse().map_err(|error| {
            Error::new(ErrorKind::Corrupt, "the id of a stored claim is none").because(error)
        })?;
        Ok(ClaimView {
            claim,
            family: self.family,
            mode,
            slot: self.slot,
            token,
            owner: Arc::clone(&self.owner),
            value: self.value.then(|| value.clone()),
            age: Duration::from_millis(now.saturating_sub(self.since)),
            expires_in: None,
        })
    }
}

fn stored(mode: Mode) -> StoredMode {
    match mode {
        Mode::Exclusive => StoredMode::Exclusive,
        Mode::Shared => StoredMode::Shared,
        Mode::Slot { of } => StoredMode::Slot(of),
    }
}

/// Another client's lock key, under an id made from what tells it apart.
pub(crate) fn foreign_view(lease: i64, created: i64, value: &Bytes, holds: bool) -> ClaimView {
    let owner = Owner {
        client: "another-client".to_owned(),
        host: String::new(),
        pid: 0,
        label: Some(format!("not a Palisade client; its lease is {lease:x}")),
        trace: None,
    };
    ClaimView {
        claim: foreign_id(lease, created),
        family: Family::Mutex,
        mode: Mode::Exclusive,
        slot: None,
        token: u64::try_from(created).ok().and_then(Token::new).filter(|_| holds),
        owner: Arc::new(owner),
        value: (!value.is_empty()).then(|| value.clone()),
        age: Duration::ZERO,
        expires_in: None,
    }
}

pub(crate) fn foreign_id(lease: i64, created: i64) -> ClaimId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&lease.to_be_bytes());
    bytes[8..].copy_from_slice(&created.to_be_bytes());
    ClaimId::from_bytes(bytes)
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
            .value("");
        let record = Record::of(&claim, "client", Some(1));
        let read = Record::parse(&record.bytes()).unwrap();
        assert_eq!(read, record);
        let view = read.view(&Bytes::new(), claim.mode, Token::new(42)).unwrap();
        assert_eq!((view.claim, view.family, view.mode), (claim.id, claim.family, claim.mode));
        assert_eq!((view.owner, view.value), (claim.owner, claim.value));
        assert_eq!((view.token, view.slot), (Token::new(42), Some(1)));
    }

    #[test]
    fn nonsense_is_an_error_not_a_panic() {
        for bytes in [&b""[..], b"{}", b"\xff", b"[1]"] {
            assert_eq!(Record::parse(bytes).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
