use std::sync::LazyLock;

use palisade_core::Name;
use redis::Cmd;

use crate::config::{Dialect, KeyPattern};
use crate::slot::{hash_tag, slot, tag_of_slot};

/// How names become keys. All keys of one resource share a hash slot, so that a script may touch them.
///
/// | key | what it is |
/// |---|---|
/// | the lock key | the lock itself, where other clients look for it |
/// | `palisade:{TAG}:KEY:r` | who holds the lock alone |
/// | `palisade:{TAG}:KEY:s`, `w`, `e` | records, the queue, and when each claim expires |
/// | `palisade:{TAG}:KEY:g`, `x` | claims that must not come in any more, and why an operator ended them |
/// | `palisade:{SLOT}:t` | the last token of a hash slot: 16,384 at most, however many names there are |
/// | `palisade:{TAG}:NAME:v` | a register |
/// | `palisade:born` | the name of the tokens' source, and the run in which the data began |
///
/// `KEY` is left out where it is the tag itself. Scripts make the others of `r` by its last letter.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// What stands before and after every name.
    before: String,
    after: String,
    /// What stands before every register's name.
    namespace: String,
    /// Where records and queues of this dialect are. Each has its own: to one, the other's locks are
    /// those of another client, which they are.
    side: &'static str,
}

/// Separates a namespace from a name. A control character: no name has one, so no two pairs meet.
const SEPARATOR: char = '\u{1f}';

pub(crate) const BORN: &str = "palisade:born";
const SIDE: &str = "palisade:{";
const REDISSON_SIDE: &str = "palisade:redisson:{";

/// How many keys of a resource a script is given.
pub(crate) const KEYS: usize = 3;

/// The keys of a resource that a script is given.
#[derive(Debug)]
pub(crate) struct ResourceKeys {
    pub(crate) lock: String,
    record: String,
    token: String,
    /// The hash slot of all of them.
    pub(crate) slot: u16,
}

impl ResourceKeys {
    /// Adds them to a command.
    pub(crate) fn add_to(&self, command: &mut Cmd) {
        command.arg(&self.lock).arg(&self.record).arg(&self.token);
    }
}

impl Layout {
    pub(crate) fn new(pattern: &KeyPattern, dialect: Dialect, namespace: &str) -> Self {
        let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}{SEPARATOR}") };
        Self {
            before: format!("{}{namespace}", pattern.before),
            after: pattern.after.clone(),
            namespace,
            side: match dialect {
                Dialect::Plain => SIDE,
                Dialect::Redisson => REDISSON_SIDE,
            },
        }
    }

    /// The lock key of a resource.
    pub(crate) fn lock(&self, resource: &Name) -> String {
        format!("{}{}{}", self.before, resource, self.after)
    }

    /// The keys of a resource.
    pub(crate) fn keys(&self, resource: &Name) -> ResourceKeys {
        let lock = self.lock(resource);
        let tag = Tag::of(&lock);
        let (slot, record) = (tag.slot, tag.side_key(self.side, 'r', &lock));
        let token = format!("{SIDE}{}}}:t", tag_of_slot(slot));
        ResourceKeys { lock, record, token, slot }
    }

    /// The key of a register.
    pub(crate) fn register(&self, register: &Name) -> String {
        let name = format!("{}{register}", self.namespace);
        Tag::of(&name).side_key(SIDE, 'v', &name)
    }

    /// A pattern for all keys that say that a resource is claimed.
    pub(crate) fn resources_pattern(&self) -> String {
        format!("{}*:[rs]", self.side)
    }

    /// A pattern for all registers.
    pub(crate) fn registers_pattern() -> String {
        format!("{SIDE}*:v")
    }

    /// The resource that a side key belongs to, if it is one of this namespace.
    pub(crate) fn resource_of(&self, key: &str) -> Option<Name> {
        let lock = name_in(self.side, key)?;
        let name = lock.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        Self::own(name)
    }

    /// The register at a key, if it is one of this namespace.
    pub(crate) fn register_of(&self, key: &str) -> Option<Name> {
        let name = name_in(SIDE, key)?;
        Self::own(name.strip_prefix(&self.namespace)?)
    }

    fn own(name: &str) -> Option<Name> {
        if name.contains(SEPARATOR) {
            return None;
        }
        Name::from_stored(name).ok()
    }

    /// A lock key and a side key that nobody uses, in one slot.
    pub(crate) fn nobodys(&self) -> [String; 2] {
        static NAME: LazyLock<Name> =
            LazyLock::new(|| Name::new("palisade-checks-its-rights").expect("it is a name"));
        let lock = self.lock(&NAME);
        let side = Tag::of(&lock).side_key(self.side, 'c', &lock);
        [lock, side]
    }
}

/// The key or name that a side key belongs to.
fn name_in<'a>(side: &str, key: &'a str) -> Option<&'a str> {
    // A tag has no closing brace in it.
    let (tag, rest) = key.strip_prefix(side)?.split_once('}')?;
    let (rest, _kind) = rest.rsplit_once(':')?;
    if rest.is_empty() { Some(tag) } else { rest.strip_prefix(':') }
}

/// What makes side keys share the slot of their lock key.
struct Tag<'a> {
    slot: u16,
    own: Option<&'a str>,
}

impl<'a> Tag<'a> {
    fn of(key: &'a str) -> Self {
        // The key's own tag, or the key itself, reads best. A key with braces in odd places cannot be
        // a tag.
        let own = hash_tag(key).or_else(|| (!key.contains(['{', '}'])).then_some(key));
        Self { slot: slot(key), own }
    }

    fn side_key(&self, side: &str, kind: char, key: &str) -> String {
        match self.own {
            Some(own) if own == key => format!("{side}{own}}}:{kind}"),
            Some(own) => format!("{side}{own}}}:{key}:{kind}"),
            None => format!("{side}{}}}:{key}:{kind}", tag_of_slot(self.slot)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(layout: &Layout, name: &str) -> Vec<String> {
        let ResourceKeys { lock, record, token, .. } = layout.keys(&Name::new(name).unwrap());
        let others = ["s", "w", "e", "g"].map(|kind| format!("{}{kind}", &record[..record.len() - 1]));
        [vec![lock, record], others.to_vec(), vec![token]].concat()
    }

    #[test]
    fn all_keys_of_a_resource_share_a_slot_whatever_its_name() {
        for pattern in ["{name}", "lock:{name}", "{tenant}:{name}", "{name}:}{lock"] {
            let layout = Layout::new(&KeyPattern::parse(pattern).unwrap(), Dialect::Plain, "");
            for name in ["orders", "a{b}c", "a}b", "{}x", "{", "}{", "{{a}}", "a{}b{c}", "é🚲", "a:b}:s:c"]
            {
                let keys = keys(&layout, name);
                for key in &keys {
                    assert_eq!(slot(key), slot(&keys[0]), "{key} of {name} by {pattern}");
                }
                for side in &keys[1..keys.len() - 1] {
                    assert_eq!(layout.resource_of(side).unwrap().as_str(), name, "{side}");
                }
            }
        }
    }

    #[test]
    fn the_lock_key_is_what_others_call_it() {
        let plain = Layout::new(&KeyPattern::default(), Dialect::Plain, "");
        assert_eq!(keys(&plain, "orders/42")[0], "orders/42");
        assert_eq!(keys(&plain, "orders")[1], "palisade:{orders}:r");
        let prefixed = Layout::new(&KeyPattern::parse("job-lock:{name}:x").unwrap(), Dialect::Plain, "");
        assert_eq!(keys(&prefixed, "orders")[0], "job-lock:orders:x");
    }

    #[test]
    fn namespaces_do_not_see_each_other() {
        let pattern = KeyPattern::default();
        let (none, a, ab) = (
            Layout::new(&pattern, Dialect::Plain, ""),
            Layout::new(&pattern, Dialect::Plain, "a"),
            Layout::new(&pattern, Dialect::Plain, "a/b"),
        );
        let key = keys(&a, "b/c");
        assert_ne!(key[0], keys(&ab, "c")[0]);
        assert_eq!(a.resource_of(&key[1]).unwrap().as_str(), "b/c");
        assert_eq!((none.resource_of(&key[1]), ab.resource_of(&key[1])), (None, None));
        let register = a.register(&Name::new("r").unwrap());
        assert_eq!(a.register_of(&register).unwrap().as_str(), "r");
        assert_eq!((none.register_of(&register), ab.register_of(&register)), (None, None));
    }
}
