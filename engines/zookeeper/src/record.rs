use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use palisade_core::{Claim, ClaimId, ClaimView, Error, ErrorKind, Family, Mode, Owner, Result, Token};
use serde::{Deserialize, Serialize};

/// What is stored of a claim, as JSON: people look at it too. It follows the claim's value in its node's data,
/// so that whoever only looks at the beginning, such as Curator's `LeaderLatch`, sees the value.
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
    /// The transaction that made the node by which it waited for its slot: its place among all who came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) came: Option<i64>,
    /// A token that is not the node's first transaction, because a quorum counted further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// Whether what comes before is a value: an empty one is not the same as none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) value: bool,
    /// When it was made, by its host's clock: for people to read only.
    since: u64,
    #[serde(with = "shared")]
    owner: Arc<Owner>,
}

/// What comes between value and record. JSON holds no line break, so that the last one is ours.
const MARK: &[u8] = b"\n#palisade ";

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
            came: None,
            token: None,
            value: claim.value.is_some(),
            since,
            owner: Arc::clone(&claim.owner),
        }
    }

    /// Reads a node's data: the value, and the record unless another client made it.
    pub(crate) fn parse(data: &Bytes) -> (Bytes, Option<Self>) {
        let at = data.windows(MARK.len()).rposition(|some| some == MARK);
        let record = at.and_then(|at| serde_json::from_slice(&data[at + MARK.len()..]).ok());
        match (at, record) {
            (Some(at), Some(record)) => (data.slice(..at), Some(record)),
            // Also what somebody wrote over ours: its name still tells what it is.
            _ => (data.clone(), None),
        }
    }

    /// A node's data.
    pub(crate) fn bytes(&self, value: &[u8]) -> Vec<u8> {
        let record = serde_json::to_vec(self).expect("a record is plain text and numbers");
        [value, MARK, &record].concat()
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

/// Another client's claim, under the id in its name or one made from what tells it apart.
pub(crate) fn foreign_view(
    id: ClaimId,
    session: i64,
    value: &Bytes,
    mode: Mode,
    token: Option<Token>,
) -> ClaimView {
    let owner = Owner {
        client: "another-client".to_owned(),
        host: String::new(),
        pid: 0,
        label: Some(format!("not a Palisade client; its session is {session:#x}")),
        trace: None,
    };
    ClaimView {
        claim: id,
        family: mode.usual_family(),
        mode,
        slot: None,
        token,
        owner: Arc::new(owner),
        value: (!value.is_empty()).then(|| value.clone()),
        age: Duration::ZERO,
        expires_in: None,
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Name, Ttl};

    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let owner = Arc::new(Owner { label: Some("a b = c\u{1f}é".into()), ..Owner::this_process() });
        let value: &[u8] = b"v\n#palisade {}\xff";
        let claim = Claim::new(Name::new("n").unwrap(), Mode::Slot { of: 3 }, Ttl::default(), owner)
            .family(Family::Election)
            .value(value);
        let record = Record::of(&claim, "client", Some(1));
        let (stored, read) = Record::parse(&record.bytes(value).into());
        assert_eq!((&stored[..], read.as_ref()), (value, Some(&record)));
        let view = record.view(&stored, claim.mode, Token::new(42)).unwrap();
        assert_eq!((view.claim, view.family, view.mode), (claim.id, claim.family, claim.mode));
        assert_eq!((view.owner, view.value), (claim.owner, claim.value));
        assert_eq!((view.token, view.slot), (Token::new(42), Some(1)));
    }

    #[test]
    fn data_of_others_is_none_of_ours() {
        for data in [&b""[..], b"127.0.0.1", b"__REVOKE__", b"\n#palisade [1]", b"\xff"] {
            assert_eq!(Record::parse(&Bytes::from_static(data)).1, None);
        }
    }
}
