use std::fmt::Write as _;

use palisade_core::{ClaimId, Name};

use crate::proto::RangeRequest;
use crate::txn::end_of;

/// Where everything is. The table of keys is in `docs/design/0005-etcd.md`.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    prefix: String,
    /// What lock keys of the namespace begin with.
    locks: String,
    /// What our own keys of the namespace begin with.
    own: String,
}

/// The two sides of one resource.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// What its lock keys begin with, as every client of etcd expects.
    pub(crate) locks: Vec<u8>,
    /// What their records begin with.
    pub(crate) records: Vec<u8>,
    /// A number of slots that was changed.
    pub(crate) slots: Vec<u8>,
    /// The greatest token that was lifted.
    pub(crate) floor: Vec<u8>,
}

impl Resource {
    pub(crate) fn lock(&self, tail: &str) -> Vec<u8> {
        [&self.locks, tail.as_bytes()].concat()
    }

    pub(crate) fn record(&self, tail: &str) -> Vec<u8> {
        [&self.records, tail.as_bytes()].concat()
    }
}

impl Layout {
    pub(crate) fn new(prefix: &str, namespace: &str) -> Self {
        let namespace = encode(namespace);
        let locks = if namespace.is_empty() { prefix.to_owned() } else { format!("{prefix}{namespace}%%") };
        let own = format!("{prefix}%palisade/{namespace}/");
        Self { prefix: prefix.to_owned(), locks, own }
    }

    pub(crate) fn resource(&self, name: &Name) -> Resource {
        let name = encode(name.as_str());
        Resource {
            locks: format!("{}{name}/", self.locks).into(),
            records: format!("{}claim/{name}/", self.own).into(),
            slots: format!("{}slots/{name}", self.own).into(),
            floor: format!("{}floor/{name}", self.own).into(),
        }
    }

    /// All keys among which are those of locks whose names begin like this; others too.
    pub(crate) fn locks_under(&self, prefix: &str) -> RangeRequest {
        let start = format!("{}{}", self.locks, encode(prefix)).into_bytes();
        let range_end = end_of(&start);
        // A key is never empty.
        let key = if start.is_empty() { vec![0] } else { start };
        RangeRequest { key, range_end, ..RangeRequest::default() }
    }

    /// Whose lock a key is, if it looks like one: `NAME/` and then the number of a lease.
    pub(crate) fn resource_of(&self, key: &[u8]) -> Option<Name> {
        let rest = key.strip_prefix(self.locks.as_bytes())?;
        let (name, tail) = std::str::from_utf8(rest).ok()?.split_once('/')?;
        lease_of(tail)?;
        Name::from_stored(&decode(name)?).ok()
    }

    /// What is told to one client: which of its leases and claims have ended.
    pub(crate) fn client(&self, client: &str) -> Vec<u8> {
        format!("{}client/{client}/", self.own).into()
    }

    pub(crate) fn session(&self, client: &str, lease: i64) -> Vec<u8> {
        format!("{}client/{client}/lease/{lease:x}", self.own).into()
    }

    pub(crate) fn grave(&self, client: &str, claim: ClaimId) -> Vec<u8> {
        format!("{}client/{client}/gone/{claim}", self.own).into()
    }

    /// The claim of a grave, or the lease of a session, at a key of the client's own.
    pub(crate) fn news_of(&self, client: &str, key: &[u8]) -> Option<News> {
        let rest = std::str::from_utf8(key.strip_prefix(&self.client(client)[..])?).ok()?;
        match rest.split_once('/')? {
            ("gone", claim) => claim.parse().ok().map(News::Gone),
            ("lease", lease) => i64::from_str_radix(lease, 16).ok().map(News::Lease),
            _ => None,
        }
    }

    pub(crate) fn register(&self, name: &Name) -> Vec<u8> {
        format!("{}register/{}", self.own, encode(name.as_str())).into()
    }

    /// Where the value of a register is while it is one that expires.
    pub(crate) fn value(&self, name: &Name) -> Vec<u8> {
        format!("{}value/{}", self.own, encode(name.as_str())).into()
    }

    pub(crate) fn registers(&self) -> Vec<u8> {
        format!("{}register/", self.own).into()
    }

    pub(crate) fn values(&self) -> Vec<u8> {
        format!("{}value/", self.own).into()
    }

    /// Whose register a key is.
    pub(crate) fn register_of(&self, key: &[u8]) -> Option<Name> {
        let rest = key.strip_prefix(&self.registers()[..])?;
        Name::from_stored(&decode(std::str::from_utf8(rest).ok()?)?).ok()
    }

    /// Who counts the tokens; one for all namespaces.
    pub(crate) fn source(&self) -> Vec<u8> {
        format!("{}%palisade-source", self.prefix).into()
    }
}

/// The lease that the end of a lock's key names.
fn lease_of(tail: &str) -> Option<i64> {
    let lease = tail.split_once('-').map_or(tail, |(lease, _)| lease);
    lease.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| i64::from_str_radix(lease, 16).ok())?
}

/// What a key of the client's own is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Gone(ClaimId),
    Lease(i64),
}

/// A name without `/`, in which every `%` is followed by two hexadecimal digits: no name runs into
/// another, and none into a key of ours.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter == '%' || letter == '/' || letter.is_ascii_control() {
            let _ = write!(encoded, "%{:02X}", letter as u32);
        } else {
            encoded.push(letter);
        }
    }
    encoded
}

/// The text that was encoded, if it was.
pub(crate) fn decode(text: &str) -> Option<String> {
    palisade_core::percent_decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn text(key: Vec<u8>) -> String {
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn plain_names_are_as_other_clients_write_them() {
        let resource = Layout::new("", "").resource(&name("orders-42"));
        assert_eq!(text(resource.lock("7c")), "orders-42/7c");
        let resource = Layout::new("/my/", "").resource(&name("lock"));
        assert_eq!(text(resource.lock("7c")), "/my/lock/7c");
    }

    #[test]
    fn no_lock_is_under_another_nor_under_our_own_keys() {
        let layouts = [Layout::new("", ""), Layout::new("", "a"), Layout::new("", "a/b")];
        let names = ["a", "a/b", "b", "a%%b", "%palisade", "%palisade/", "a%2Fb", "/", "%"];
        let all: Vec<Resource> =
            layouts.iter().flat_map(|layout| names.iter().map(|text| layout.resource(&name(text)))).collect();
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                if at != other_at {
                    assert!(!other.lock("1").starts_with(&one.locks), "{one:?} covers {other:?}");
                    assert!(!other.record("1").starts_with(&one.records), "{one:?} covers {other:?}");
                }
                assert!(!other.record("1").starts_with(&one.locks), "{one:?} covers a record of {other:?}");
            }
        }
    }

    #[test]
    fn what_is_no_lock_is_not_taken_for_one() {
        let layout = Layout::new("", "");
        let others = ["a", "a/b/7c", "/registry/pods/7c", "a/", "a/x", "%palisade/n/client/c", "n%%a/7c"];
        for key in others {
            assert_eq!(layout.resource_of(key.as_bytes()), None, "{key}");
        }
        let everything = layout.locks_under("");
        assert_eq!((everything.key, everything.range_end), (vec![0], vec![0]));
    }

    #[test]
    fn names_are_read_again() {
        let layout = Layout::new("p", "n/s");
        for text in ["a", "a/b", "%", "\u{fffd}é%2F"] {
            let name = name(text);
            assert_eq!(layout.resource_of(&layout.resource(&name).lock("7c-1")), Some(name.clone()));
            assert!(layout.resource(&name).lock("7c").starts_with(&layout.locks_under(text).key));
            assert_eq!(layout.register_of(&layout.register(&name)), Some(name));
        }
        let internal = Name::internal("once", &name("a"));
        assert_eq!(layout.register_of(&layout.register(&internal)), Some(internal));
        let id = ClaimId::random();
        assert_eq!(layout.news_of("c", &layout.grave("c", id)), Some(News::Gone(id)));
        assert_eq!(layout.news_of("c", &layout.session("c", 0x7c)), Some(News::Lease(0x7c)));
    }
}
