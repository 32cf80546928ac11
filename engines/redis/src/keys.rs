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
/// | `palisade:{TAG}:r:KEY` | who holds the lock alone |
/// | `palisade:{TAG}:s:KEY`, `w`, `e` | records, the queue, and when each claim expires |
/// | `palisade:{TAG}:g:KEY` | claims that must not come in any more |
/// | `palisade:{SLOT}:t` | the last token of a hash slot: 16,384 at most, however many names there are |
/// | `palisade:{TAG}:v:NAME` | a register |
/// | `palisade:born` | the name of the tokens' source, and the run in which the data began |
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

/// How many keys a resource has.
pub(crate) const KEYS: usize = 7;

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

    /// Adds the seven keys of a resource to a command.
    pub(crate) fn add_keys(&self, command: &mut Cmd, resource: &Name) {
        let lock = self.lock(resource);
        let tag = Tag::of(&lock);
        command.arg(&lock);
        let mut side = String::with_capacity(self.side.len() + tag.text().len() + lock.len() + 4);
        for kind in ['r', 's', 'w', 'e', 'g'] {
            side.clear();
            tag.side_key(&mut side, self.side, kind, &lock);
            command.arg(&side);
        }
        side.clear();
        side.push_str(SIDE);
        side.push_str(&tag_of_slot(tag.slot));
        side.push_str("}:t");
        command.arg(&side);
    }

    /// The key of a register.
    pub(crate) fn register(&self, register: &Name) -> String {
        let name = format!("{}{register}", self.namespace);
        let mut key = String::new();
        Tag::of(&name).side_key(&mut key, SIDE, 'v', &name);
        key
    }

    /// A pattern for all side keys of `kinds` whose names begin with `prefix`.
    pub(crate) fn resources_matching(&self, prefix: &str) -> String {
        format!("{}*}}:[rs]:{}*", self.side, glob(&format!("{}{prefix}", self.before)))
    }

    /// A pattern for all registers whose names begin with `prefix`.
    pub(crate) fn registers_matching(&self, prefix: &str) -> String {
        format!("{SIDE}*}}:v:{}*", glob(&format!("{}{prefix}", self.namespace)))
    }

    /// The resource that a side key belongs to, if it is one of this namespace.
    pub(crate) fn resource_of(&self, key: &str) -> Option<Name> {
        let (_, lock) = parts(self.side, key)?;
        let name = lock.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        Self::own(name)
    }

    /// The register at a key, if it is one of this namespace.
    pub(crate) fn register_of(&self, key: &str) -> Option<Name> {
        let (_, name) = parts(SIDE, key)?;
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
        let mut side = String::new();
        Tag::of(&lock).side_key(&mut side, self.side, 'c', &lock);
        [lock, side]
    }
}

/// The kind and the name in a side key.
fn parts<'a>(side: &str, key: &'a str) -> Option<(char, &'a str)> {
    // A tag has no closing brace in it.
    let (_, rest) = key.strip_prefix(side)?.split_once("}:")?;
    let mut rest = rest.chars();
    let kind = rest.next()?;
    Some((kind, rest.as_str().strip_prefix(':')?))
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

    fn text(&self) -> &str {
        self.own.unwrap_or("0000")
    }

    fn side_key(&self, into: &mut String, side: &str, kind: char, key: &str) {
        into.push_str(side);
        match self.own {
            Some(own) => into.push_str(own),
            None => into.push_str(&tag_of_slot(self.slot)),
        }
        into.push_str("}:");
        into.push(kind);
        into.push(':');
        into.push_str(key);
    }
}

/// `text` as a pattern that matches nothing else.
fn glob(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, letter| {
        if matches!(letter, '*' | '?' | '[' | ']' | '^' | '\\' | '-') {
            escaped.push('\\');
        }
        escaped.push(letter);
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(layout: &Layout, name: &str) -> Vec<String> {
        let mut command = Cmd::new();
        layout.add_keys(&mut command, &Name::new(name).unwrap());
        command
            .args_iter()
            .map(|argument| match argument {
                redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                _ => panic!("a key"),
            })
            .collect()
    }

    #[test]
    fn all_keys_of_a_resource_share_a_slot_whatever_its_name() {
        for pattern in ["{name}", "lock:{name}", "{tenant}:{name}", "{name}:}{lock"] {
            let layout = Layout::new(&KeyPattern::parse(pattern).unwrap(), Dialect::Plain, "");
            for name in ["orders", "a{b}c", "a}b", "{}x", "{", "}{", "{{a}}", "a{}b{c}", "é🚲", "a:b}:s:c"]
            {
                let keys = keys(&layout, name);
                assert_eq!(keys.len(), KEYS);
                for key in &keys {
                    assert_eq!(slot(key), slot(&keys[0]), "{key} of {name} by {pattern}");
                }
                for side in &keys[1..KEYS - 1] {
                    assert_eq!(layout.resource_of(side).unwrap().as_str(), name, "{side}");
                }
            }
        }
    }

    #[test]
    fn the_lock_key_is_what_others_call_it() {
        let plain = Layout::new(&KeyPattern::default(), Dialect::Plain, "");
        assert_eq!(keys(&plain, "orders/42")[0], "orders/42");
        assert_eq!(keys(&plain, "orders")[1], "palisade:{orders}:r:orders");
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

    #[test]
    fn patterns_match_nothing_but_what_they_say() {
        let layout = Layout::new(&KeyPattern::default(), Dialect::Plain, "");
        assert_eq!(layout.resources_matching("a*[b]"), "palisade:{*}:[rs]:a\\*\\[b\\]*");
    }
}
