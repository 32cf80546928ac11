use redis::Cmd;

use crate::config::Dialect;

/// A script, called by its hash.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

impl Script {
    pub(crate) fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The call with so many keys; `rest` adds them, and the arguments.
    pub(crate) fn call(&self, keys: usize, rest: impl FnOnce(&mut Cmd)) -> Call<'_> {
        // Room for one claim: most calls are for one.
        let mut by_hash = Cmd::with_capacity(10, 512);
        by_hash.arg("EVALSHA").arg(&self.hash).arg(keys);
        rest(&mut by_hash);
        Call { script: self, by_hash }
    }
}

/// One call of a script.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    script: &'a Script,
    pub(crate) by_hash: Cmd,
}

impl Call<'_> {
    /// The same call with the whole text, for a server that has lost it (or never had it). One request,
    /// where loading it first would be two.
    pub(crate) fn by_text(&self) -> Cmd {
        let mut by_text = redis::cmd("EVAL");
        by_text.arg(&self.script.text);
        for argument in self.by_hash.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = argument {
                by_text.arg(bytes);
            }
        }
        by_text
    }
}

/// All scripts of an engine, in one dialect.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) claim: Script,
    pub(crate) withdraw: Script,
    pub(crate) renew: Script,
    pub(crate) held: Script,
    pub(crate) change: Script,
    pub(crate) evict: Script,
    pub(crate) inspect: Script,
    pub(crate) list: Script,
    pub(crate) read: Script,
    pub(crate) write: Script,
    pub(crate) arrive: Script,
    pub(crate) rights: Script,
}

/// The part of a fenced script that the caller's own text follows; see `crate::FencedScript`.
pub(crate) const FENCE: &str = include_str!("scripts/fence.lua");
pub(crate) const FENCE_PRELUDE: &str = include_str!("scripts/fence_prelude.lua");

impl Scripts {
    /// `single` says that whoever can be told anything listens at the server that runs the script.
    pub(crate) fn new(dialect: Dialect, single: bool) -> Self {
        let lock = match dialect {
            Dialect::Plain => include_str!("scripts/plain.lua"),
            Dialect::Redisson => include_str!("scripts/redisson.lua"),
        };
        let header = format!("local K, S, W, E, X, G, T\nlocal SINGLE = {single}\n");
        let ledger = include_str!("scripts/ledger.lua");
        // The shortcuts speak the plain dialect.
        let over_ledger = |shortcut: &str, verb: &str| {
            let shortcut = if dialect == Dialect::Plain { shortcut } else { "local answers = {}\n" };
            Script::new([shortcut, &header, lock, ledger, verb].concat())
        };
        let over_fence = |verb: &str| Script::new([FENCE, verb].concat());
        Self {
            claim: over_ledger(
                // On a Cluster nobody is let in by a shortcut, so that to come by one gains nothing.
                if single {
                    concat!(
                        include_str!("scripts/claim_fast.lua"),
                        include_str!("scripts/queue_fast.lua"),
                        include_str!("scripts/claims_fast.lua")
                    )
                } else {
                    concat!(include_str!("scripts/claim_fast.lua"), include_str!("scripts/claims_fast.lua"))
                },
                include_str!("scripts/claim.lua"),
            ),
            withdraw: over_ledger(
                // On a Cluster nobody knows who was told.
                if single {
                    concat!(
                        include_str!("scripts/withdraw_fast.lua"),
                        include_str!("scripts/hand_over_fast.lua")
                    )
                } else {
                    include_str!("scripts/withdraw_fast.lua")
                },
                include_str!("scripts/withdraw.lua"),
            ),
            renew: over_ledger("", include_str!("scripts/renew.lua")),
            held: over_ledger("", include_str!("scripts/held.lua")),
            change: over_ledger("", include_str!("scripts/change.lua")),
            evict: over_ledger("", include_str!("scripts/evict.lua")),
            inspect: over_ledger("", include_str!("scripts/inspect.lua")),
            list: Script::new(include_str!("scripts/list.lua").to_owned()),
            read: over_fence(include_str!("scripts/register_read.lua")),
            write: over_fence(include_str!("scripts/register_write.lua")),
            arrive: Script::new(include_str!("scripts/arrive.lua").to_owned()),
            rights: Script::new(include_str!("scripts/rights.lua").to_owned()),
        }
    }
}
