use std::fmt::Write as _;

use palisade_core::{ClaimId, Family, Mode, Name};
use uuid::Uuid;

use crate::config::{Dialect, ZooKeeperConfig};

/// Where everything is. The table of nodes is in `docs/design/0006-zookeeper.md`.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Below which locks are.
    pub(crate) root: String,
    /// What the names of the namespace begin with there.
    marked: String,
    /// Below which our own nodes of the namespace are.
    own: String,
    dialect: Dialect,
}

impl Layout {
    pub(crate) fn new(config: &ZooKeeperConfig) -> Self {
        let root = format!("{}{}", config.chroot, config.root);
        let namespace = encode(&config.namespace);
        let marked = if namespace.is_empty() { String::new() } else { format!("{namespace}%%") };
        // No encoded text has a % that is not followed by two digits.
        let own = format!("{root}/%palisade/{}", if namespace.is_empty() { "%default" } else { &namespace });
        Self { root, marked, own, dialect: config.dialect }
    }

    /// The folder of a resource, whose children are its claims.
    pub(crate) fn resource(&self, name: &Name) -> String {
        format!("{}/{}{}", self.root, self.marked, encode(name.as_str()))
    }

    /// Whose folder has this name below the root, in this namespace.
    pub(crate) fn resource_of(&self, child: &str) -> Option<Name> {
        let rest = child.strip_prefix(&self.marked)?;
        // Those of other namespaces, and our own nodes, are no encoded names.
        Name::from_stored(&decode(rest)?).ok()
    }

    /// What a claim's node is called below its resource's folder, but for its number.
    pub(crate) fn claim(&self, id: ClaimId, family: Family, mode: Mode) -> String {
        let id = Uuid::from_bytes(*id.as_bytes());
        match self.dialect {
            // kazoo's own semaphore is none that others could stand in line with.
            _ if matches!(mode, Mode::Slot { .. }) => format!("{QUEUE}/_c_{}-lock-", id.hyphenated()),
            Dialect::Curator => {
                let mark = match (mode, family) {
                    (Mode::Shared, _) => "__READ__",
                    (Mode::Exclusive, Family::Rw) => "__WRIT__",
                    (Mode::Exclusive, Family::Election) => "latch-",
                    _ => "lock-",
                };
                format!("_c_{}-{mark}", id.hyphenated())
            }
            Dialect::Kazoo => {
                let mark = if mode == Mode::Shared { "__rlock__" } else { "__lock__" };
                format!("{}{mark}", id.simple())
            }
        }
    }

    /// The same of the node by which a claim holds a slot.
    pub(crate) fn lease(id: ClaimId) -> String {
        format!("{LEASES}/_c_{}-lease-", Uuid::from_bytes(*id.as_bytes()).hyphenated())
    }

    /// Where a client is told of what became of its claims.
    pub(crate) fn client(&self, client: &str) -> String {
        format!("{}/client/{client}", self.own)
    }

    /// Is there as long as the client is.
    pub(crate) fn alive(&self, client: &str) -> String {
        format!("{}/alive", self.client(client))
    }

    /// Tells a client that a claim of its was ended, and why.
    pub(crate) fn grave(&self, client: &str, claim: ClaimId) -> String {
        format!("{}/gone-{claim}", self.client(client))
    }

    /// Whose grave has this name among what a client is told.
    pub(crate) fn grave_of(child: &str) -> Option<ClaimId> {
        child.strip_prefix("gone-")?.parse().ok()
    }

    /// Where registers are.
    pub(crate) fn registers(&self) -> String {
        format!("{}/register", self.own)
    }

    pub(crate) fn register(&self, name: &Name) -> String {
        format!("{}/register/{}", self.own, encode(name.as_str()))
    }

    /// Where the ends of values are that are too long for one node.
    pub(crate) fn rests(&self) -> String {
        format!("{}/rest", self.own)
    }

    pub(crate) fn register_of(child: &str) -> Option<Name> {
        Name::from_stored(&decode(child)?).ok()
    }

    /// Who counts the tokens; one for all namespaces.
    pub(crate) fn source(&self) -> String {
        format!("{}/%palisade/source", self.root)
    }
}

/// Below a resource's folder: where claims of slots wait, as Curator's semaphore has it, and where they hold.
pub(crate) const QUEUE: &str = "locks";
pub(crate) const LEASES: &str = "leases";

/// The kinds of nodes right in the folder that are claims, of Curator and kazoo.
const MARKS: [(&str, Mark); 6] = [
    ("__WRIT__", Mark::Exclusive),
    ("__READ__", Mark::Shared),
    ("__rlock__", Mark::Shared),
    ("__lock__", Mark::Exclusive),
    ("latch-", Mark::Exclusive),
    ("lock-", Mark::Exclusive),
];

/// How a claim wants to hold, as its node's name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Exclusive,
    Shared,
    /// A slot, which it waits for.
    Queued,
    /// A slot, which it has.
    Leased,
}

impl Mark {
    pub(crate) fn is_slot(self) -> bool {
        matches!(self, Self::Queued | Self::Leased)
    }
}

/// What the name of a claim's node tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) id: Option<ClaimId>,
    pub(crate) mark: Mark,
    /// Its number: of 32 bits, which go on below zero after the greatest.
    pub(crate) number: i32,
}

impl Called {
    /// Reads a name as it is below the folder.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (name, marks): (&str, &[(&str, Mark)]) = match name.split_once('/') {
            None => (name, &MARKS),
            Some((QUEUE, name)) => (name, &[("lock-", Mark::Queued)]),
            Some((LEASES, name)) => (name, &[("lease-", Mark::Leased)]),
            Some(_) => return None,
        };
        let (before, mark, number) = marks.iter().find_map(|(text, mark)| {
            let (before, number) = name.rsplit_once(text)?;
            Some((before, *mark, parse_number(number)?))
        })?;
        let id = before.strip_prefix("_c_").map_or(before, |rest| rest.trim_end_matches('-'));
        Some(Self { id: id.parse().ok(), mark, number })
    }
}

/// As `%010d` writes a number, and nothing else.
fn parse_number(text: &str) -> Option<i32> {
    let number: i32 = text.parse().ok()?;
    (format!("{number:010}") == text).then_some(number)
}

/// The token that the folder of a resource says was given at most, by a node that is called so.
pub(crate) fn floor(token: u64) -> String {
    format!("floor%{token}")
}

pub(crate) fn floor_of(child: &str) -> Option<u64> {
    child.strip_prefix("floor%")?.parse().ok()
}

/// Whether a letter may stand in a path of ZooKeeper.
pub(crate) fn is_plain(letter: char) -> bool {
    let number = letter as u32;
    // Java takes what lies above for two letters, which it refuses; what lies below it refuses itself.
    !(letter.is_control() || number >= 0xd800)
}

/// A text as one part of a path, in which every `%` is followed by two hexadecimal digits: no name runs
/// into another, and none into a node of ours.
pub(crate) fn encode(text: &str) -> String {
    let dots = text == "." || text == "..";
    let mut encoded = String::with_capacity(text.len());
    for letter in text.chars() {
        if !is_plain(letter) || letter == '%' || letter == '/' || dots {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                let _ = write!(encoded, "%{byte:02X}");
            }
        } else {
            encoded.push(letter);
        }
    }
    encoded
}

/// The text that was encoded, if it was; two never come from one text.
fn decode(text: &str) -> Option<String> {
    let decoded = palisade_core::percent_decode(text).ok()?;
    (encode(&decoded) == text).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(namespace: &str) -> Layout {
        Layout::new(&ZooKeeperConfig::parse("zk://h/app").unwrap().namespace(namespace))
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn plain_names_are_as_other_clients_write_them() {
        assert_eq!(layout("").resource(&name("orders-42")), "/app/locks/orders-42");
        let id: ClaimId = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let mutex = layout("").claim(id, Family::Mutex, Mode::Exclusive);
        assert_eq!(mutex, "_c_01234567-89ab-cdef-0123-456789abcdef-lock-");
        assert_eq!(&layout("").claim(id, Family::Rw, Mode::Shared)[40..], "__READ__");
    }

    #[test]
    fn names_and_namespaces_stay_apart() {
        let texts = ["a", "a/b", ".", "..", "%", "a%%b", "%palisade", "a%2Fb", "🦀", "a\u{fffd}", "é"];
        let mut all = std::collections::HashSet::new();
        for layout in ["", "a", "a/b", "a%"].map(layout) {
            for text in texts {
                let path = layout.resource(&name(text));
                let child = path.strip_prefix("/app/locks/").unwrap();
                assert!(!child.contains('/') && child.chars().all(is_plain) && child != "." && child != "..");
                assert_eq!(layout.resource_of(child), Some(name(text)));
                assert!(all.insert(path));
            }
        }
        assert_eq!(layout("").resource_of("a%%b"), None);
        assert_eq!(layout("").resource_of("%palisade"), None);
        let internal = Name::internal("once", &name("a"));
        let path = layout("x").register(&internal);
        assert_eq!(Layout::register_of(path.rsplit_once('/').unwrap().1), Some(internal));
    }

    #[test]
    fn claims_of_all_dialects_are_known() {
        let id: ClaimId = "0123456789abcdef0123456789abcdef".parse().unwrap();
        for dialect in [Dialect::Curator, Dialect::Kazoo] {
            let layout = Layout { dialect, ..layout("") };
            for (mode, mark) in [
                (Mode::Exclusive, Mark::Exclusive),
                (Mode::Shared, Mark::Shared),
                (Mode::Slot { of: 2 }, Mark::Queued),
            ] {
                let name = format!("{}0000000007", layout.claim(id, Family::Rw, mode));
                assert_eq!(Called::parse(&name), Some(Called { id: Some(id), mark, number: 7 }));
            }
        }
        let lease = format!("{}0000000007", Layout::lease(id));
        assert_eq!(Called::parse(&lease), Some(Called { id: Some(id), mark: Mark::Leased, number: 7 }));
        for other in ["leases/x-lock-0000000001", "other/x-lock-0000000001", "locks/x-latch-0000000001"] {
            assert_eq!(Called::parse(other), None, "{other}");
        }
        for other in ["locks", "leases", "floor%7", "lock-7", "lock-00000000070", "lock-x", "x-0000000001"] {
            assert_eq!(Called::parse(other), None, "{other}");
        }
        assert_eq!(Called::parse("lock--2147483648").unwrap().number, i32::MIN);
        assert_eq!(Called::parse("x__lock__-000000001").unwrap().number, -1);
    }
}
