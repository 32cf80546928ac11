use std::borrow::Cow;
use std::sync::LazyLock;

use palisade_core::Name;
use redis::Cmd;

use crate::config::{Dialect, KeyPattern};
use crate::slot::{hash_tag, slot, tag_of_slot};

/// How names become keys. All keys of one resource share a hash slot, so that a script may touch them.
///
/// | key | what it is |
/// |---|---|
/// | the lock key | the lock itself, where other clients look for it, with the record of whoever holds it alone |
/// | `palisade:{TAG}:KEY:s`, `w`, `e` | records of those who share or wait, the queue, and when each claim expires |
/// | `palisade:{TAG}:KEY:q` | who came to the queue last, by a shortcut |
/// | `palisade:{TAG}:KEY:eg`, `x` | claims that must not come in any more, and why an operator ended them |
/// | `palisade:redisson:{TAG}:KEY:r` | the record of whoever holds a lock alone that is kept as Redisson does |
/// | `palisade:t` | the last token; on a Cluster `palisade:{SLOT}:t`, one of each hash slot |
/// | `palisade:m` | there is an `e`, `q` or `eg` of some resource, or was lately; on a Cluster `palisade:{SLOT}:m` |
/// | `palisade:{TAG}:NAME:v` | a register |
/// | `palisade:born` | the name of the tokens' source, and the run in which the data began |
///
/// `KEY` is left out where it is the tag itself. Scripts make the others of `e`.
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
    /// Whether one server has all keys.
    single: bool,
}

/// Separates a namespace from a name. A control character: no name has one, so no two pairs meet.
const SEPARATOR: char = '\u{1f}';

pub(crate) const BORN: &str = "palisade:born";
pub(crate) const TOKENS: &str = "palisade:t";
/// What all keys begin with that are no locks.
pub(crate) const SIDES: &str = "palisade:";
const SIDE: &str = "palisade:{";
const REDISSON_SIDE: &str = "palisade:redisson:{";

/// How many keys of a resource a script is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// The lock key, from which the others follow.
    Lock = 1,
    /// That, and those from which the rest follows.
    All = 3,
}

impl Layout {
    pub(crate) fn new(pattern: &KeyPattern, dialect: Dialect, namespace: &str, single: bool) -> Self {
        let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}{SEPARATOR}") };
        Self {
            before: format!("{}{namespace}", pattern.before),
            after: pattern.after.clone(),
            namespace,
            side: match dialect {
                Dialect::Plain => SIDE,
                Dialect::Redisson => REDISSON_SIDE,
            },
            single,
        }
    }

    /// The lock key of a resource.
    pub(crate) fn lock<'a>(&self, resource: &'a Name) -> Cow<'a, str> {
        if self.before.is_empty() && self.after.is_empty() {
            return Cow::Borrowed(resource.as_str());
        }
        Cow::Owned([self.before.as_str(), resource.as_str(), self.after.as_str()].concat())
    }

    /// What a script must be given of a resource. Every key is one more to send, and to read.
    pub(crate) fn given(&self, resource: &Name) -> Given {
        let odd = |text: &str| text.contains(['{', '}']);
        let follows = self.single && self.side == SIDE && !odd(&self.before) && !odd(&self.after);
        if follows && !odd(resource.as_str()) { Given::Lock } else { Given::All }
    }

    /// Adds the keys of a resource to a command.
    pub(crate) fn add_keys(&self, command: &mut Cmd, resource: &Name, given: Given) {
        if given == Given::Lock {
            command.arg(&*self.lock(resource));
            return;
        }
        let [lock, expiry, token] = self.keys(resource);
        command.arg(lock).arg(expiry).arg(token);
    }

    fn keys(&self, resource: &Name) -> [String; 3] {
        let lock = self.lock(resource).into_owned();
        let tag = Tag::of(&lock);
        let expiry = tag.side_key(self.side, 'e', &lock);
        let token =
            if self.single { TOKENS.to_owned() } else { format!("{SIDE}{}}}:t", tag_of_slot(slot(&lock))) };
        [lock, expiry, token]
    }

    /// Whether the lock key of a resource would be one of our own keys.
    pub(crate) fn is_own(&self, resource: &Name) -> bool {
        self.lock(resource).starts_with(SIDES)
    }

    /// The key of a register.
    pub(crate) fn register(&self, register: &Name) -> String {
        let name = format!("{}{register}", self.namespace);
        Tag::of(&name).side_key(SIDE, 'v', &name)
    }

    /// A pattern for all side keys that say that a resource is claimed.
    pub(crate) fn side_pattern(&self) -> String {
        format!("{}*:[qrs]", self.side)
    }

    /// A pattern for all lock keys, whoever's.
    pub(crate) fn lock_pattern(&self) -> String {
        format!("{}*{}", as_pattern(&self.before), as_pattern(&self.after))
    }

    /// What all lock keys begin with.
    pub(crate) fn lock_prefix(&self) -> &str {
        &self.before
    }

    /// A pattern for all registers.
    pub(crate) fn registers_pattern() -> String {
        format!("{SIDE}*:v")
    }

    /// The resource that a side key belongs to, if it is one of this namespace.
    pub(crate) fn resource_of_side(&self, key: &str) -> Option<Name> {
        self.resource_of_lock(name_in(self.side, key)?)
    }

    /// The resource that a lock key belongs to, if it is one of this namespace.
    pub(crate) fn resource_of_lock(&self, lock: &str) -> Option<Name> {
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
        [lock.into_owned(), side]
    }
}

/// A text as a pattern that matches only itself.
fn as_pattern(text: &str) -> String {
    let special = |letter: char| matches!(letter, '*' | '?' | '[' | ']' | '^' | '-' | '\\');
    text.chars().flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter])).collect()
}

/// The key or name that a side key belongs to.
fn name_in<'a>(side: &str, key: &'a str) -> Option<&'a str> {
    // A tag has no closing brace in it.
    let (tag, rest) = key.strip_prefix(side)?.split_once('}')?;
    let (rest, _kind) = rest.rsplit_once(':')?;
    if rest.is_empty() { Some(tag) } else { rest.strip_prefix(':') }
}

/// What makes side keys share the slot of their lock key.
enum Tag<'a> {
    Own(&'a str),
    Made(String),
}

impl<'a> Tag<'a> {
    fn of(key: &'a str) -> Self {
        // The key's own tag, or the key itself, reads best. A key with braces in odd places cannot be
        // a tag.
        let own = hash_tag(key).or_else(|| (!key.contains(['{', '}'])).then_some(key));
        own.map_or_else(|| Self::Made(tag_of_slot(slot(key))), Self::Own)
    }

    fn side_key(&self, side: &str, kind: char, key: &str) -> String {
        let (tag, key) = match self {
            Self::Own(own) if *own == key => (*own, ""),
            Self::Own(own) => (*own, key),
            Self::Made(made) => (made.as_str(), key),
        };
        let mut text = String::with_capacity(side.len() + tag.len() + key.len() + 4);
        text.push_str(side);
        text.push_str(tag);
        text.push('}');
        if !key.is_empty() {
            text.push(':');
            text.push_str(key);
        }
        text.push(':');
        text.push(kind);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(layout: &Layout, name: &str) -> Vec<String> {
        let [lock, expiry, token] = layout.keys(&Name::new(name).unwrap());
        let others = ["s", "w", "q", "eg", "x"].map(|kind| format!("{}{kind}", &expiry[..expiry.len() - 1]));
        [vec![lock, expiry], others.to_vec(), vec![token]].concat()
    }

    #[test]
    fn all_keys_of_a_resource_share_a_slot_whatever_its_name() {
        for pattern in ["{name}", "lock:{name}", "{tenant}:{name}", "{name}:}{lock"] {
            let layout = Layout::new(&KeyPattern::parse(pattern).unwrap(), Dialect::Plain, "", false);
            for name in ["orders", "a{b}c", "a}b", "{}x", "{", "}{", "{{a}}", "a{}b{c}", "é🚲", "a:b}:s:c"]
            {
                let keys = keys(&layout, name);
                for key in &keys {
                    assert_eq!(slot(key), slot(&keys[0]), "{key} of {name} by {pattern}");
                }
                for side in &keys[1..keys.len() - 1] {
                    assert_eq!(layout.resource_of_side(side).unwrap().as_str(), name, "{side}");
                }
            }
        }
    }

    /// What scripts do with a lock key alone.
    #[test]
    fn keys_follow_from_the_lock_key_where_it_is_all_that_is_given() {
        let pattern = KeyPattern::parse("lock:{name}").unwrap();
        let layout = Layout::new(&pattern, Dialect::Plain, "ns", true);
        let name = Name::new("a/b").unwrap();
        assert_eq!(layout.given(&name), Given::Lock);
        let [lock, expiry, token] = layout.keys(&name);
        assert_eq!((expiry, token), (format!("palisade:{{{lock}}}:e"), "palisade:t".to_owned()));
        assert_eq!(layout.given(&Name::new("a{b}").unwrap()), Given::All);
        for (dialect, single) in [(Dialect::Redisson, true), (Dialect::Plain, false)] {
            assert_eq!(Layout::new(&pattern, dialect, "", single).given(&name), Given::All);
        }
    }

    #[test]
    fn the_lock_key_is_what_others_call_it() {
        let plain = Layout::new(&KeyPattern::default(), Dialect::Plain, "", true);
        assert_eq!(keys(&plain, "orders/42")[0], "orders/42");
        assert_eq!(keys(&plain, "orders")[1], "palisade:{orders}:e");
        let prefixed =
            Layout::new(&KeyPattern::parse("job-lock:{name}:x").unwrap(), Dialect::Plain, "", true);
        assert_eq!(keys(&prefixed, "orders")[0], "job-lock:orders:x");
    }

    #[test]
    fn namespaces_do_not_see_each_other() {
        let pattern = KeyPattern::default();
        let (none, a, ab) = (
            Layout::new(&pattern, Dialect::Plain, "", true),
            Layout::new(&pattern, Dialect::Plain, "a", true),
            Layout::new(&pattern, Dialect::Plain, "a/b", true),
        );
        let key = keys(&a, "b/c");
        assert_ne!(key[0], keys(&ab, "c")[0]);
        assert_eq!(a.resource_of_side(&key[1]).unwrap().as_str(), "b/c");
        assert_eq!((none.resource_of_side(&key[1]), ab.resource_of_side(&key[1])), (None, None));
        let register = a.register(&Name::new("r").unwrap());
        assert_eq!(a.register_of(&register).unwrap().as_str(), "r");
        assert_eq!((none.register_of(&register), ab.register_of(&register)), (None, None));
    }
}
