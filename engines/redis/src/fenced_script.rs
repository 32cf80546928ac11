use std::fmt;

use palisade_core::{FencingToken, Name};

use crate::config::{Dialect, KeyPattern};
use crate::keys::Layout;
use crate::registers::token_args;
use crate::script::{FENCE, FENCE_PRELUDE};

/// A caller's own script that is refused to whoever lost its lock.
///
/// The fence is checked and raised in the same step in which the script writes: a holder that was
/// stopped past its TTL cannot write afterwards, however late its call arrives.
///
/// The caller's text goes on with its own keys and arguments: `KEYS[2]` is the first of its keys,
/// `ARGV[5]` the first of its arguments. On a Cluster the fence must share a slot with them: name it
/// with [`FencedScript::fenced_at`].
///
/// ```
/// use palisade_redis::FencedScript;
/// let charge = FencedScript::new("return redis.call('DECRBY', KEYS[2], ARGV[5])").fenced_at("{card:7}:fence");
/// assert!(charge.text().contains("DECRBY"));
/// // redis::cmd("EVAL").arg(charge.text()).arg(2).arg(charge.fence()).arg("{card:7}:balance")
/// //     .arg(&charge.args(&guard.fencing_token())[..]).arg(500)
/// ```
#[derive(Debug, Clone)]
pub struct FencedScript {
    text: String,
    fence: String,
}

impl FencedScript {
    /// The script that does `body` if the fence lets it. All scripts share one fence, at a key of its own,
    /// until they name another.
    pub fn new(body: &str) -> Self {
        let guard = "local palisade_refused = palisade_admit(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])\n\
                     if palisade_refused then return palisade_refused end\n";
        let text = [FENCE, FENCE_PRELUDE, guard, body].concat();
        Self { text, fence: "palisade:{palisade-fenced-scripts}:fence".to_owned() }
    }

    /// The same script with its fence at this key, which nothing else may use.
    #[must_use]
    pub fn fenced_at(mut self, key: impl Into<String>) -> Self {
        self.fence = key.into();
        self
    }

    /// The same script behind the fence of a register, which fenced writes to that register raise too.
    #[must_use]
    pub fn fenced_by(mut self, namespace: &str, register: &Name) -> Self {
        self.fence = Layout::new(&KeyPattern::default(), Dialect::Plain, namespace, true).register(register);
        self
    }

    /// The whole text, for `EVAL` or `SCRIPT LOAD`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first key of every call.
    pub fn fence(&self) -> &str {
        &self.fence
    }

    /// The first four arguments of every call.
    pub fn args(&self, token: &FencingToken) -> [String; 4] {
        token_args(token)
    }
}

/// A script was refused, because a later holder has been there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The token that was turned away.
    pub yours: String,
    /// What counts instead: a greater token, or the source that the fence follows.
    pub current: String,
}

impl Stale {
    /// Reads the refusal out of what the server answered to a fenced script: the error's whole text.
    /// `None` if it is another error.
    pub fn from_error(text: &str) -> Option<Self> {
        let refusal = text.split_once("PALISADE")?.1.trim_start_matches([':', ' ', '"']);
        let mut parts = refusal.trim_end_matches('"').splitn(3, ' ');
        let (_, yours, current) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { yours: yours.to_owned(), current: current.to_owned() })
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} is stale, {} counts now", self.yours, self.current)
    }
}

impl std::error::Error for Stale {}
