use std::fmt;

use anyhow::Result;
use futures::future::BoxFuture;
use palisade_core::{Fairness, Family, Liveness, Mode, Profile, Wakeup};

use crate::{Context, Fixture};

/// The body of a case.
pub type Run = fn(Context) -> BoxFuture<'static, Result<()>>;

/// One thing that every engine must do.
#[derive(Clone)]
pub struct Case {
    /// Theme and name, such as `claims::a_free_resource_is_granted_at_once`.
    pub name: String,
    /// The clause of the contract that it checks, word for word.
    pub clause: &'static str,
    /// How an exclusive claim is made in this run of the case.
    pub way: Way,
    /// What the engine and its fixture must offer.
    pub(crate) needs: &'static [Need],
    /// Nothing else may run at the same time: it restarts the engine, or loads it so much that
    /// short TTLs elsewhere would say nothing.
    pub(crate) alone: bool,
    /// The body.
    pub run: Run,
}

impl Case {
    /// Whether the case applies to an engine.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn applies(&self, profile: &Profile, fixture: &dyn Fixture) -> Result<(), String> {
        self.way.needs().iter().chain(self.needs).try_for_each(|need| need.check(profile, fixture))
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("clause", &self.clause).finish_non_exhaustive()
    }
}

/// The three ways to hold a resource alone. Mutex cases run over each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A mutex.
    Mutex,
    /// The write side of a read-write lock.
    Write,
    /// A semaphore with one slot.
    OneSlot,
}

impl Way {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Mutex, Self::Write, Self::OneSlot];

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Mutex | Self::Write => Mode::Exclusive,
            Self::OneSlot => Mode::Slot { of: 1 },
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Mutex => Family::Mutex,
            Self::Write => Family::Rw,
            Self::OneSlot => Family::Permits,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Write => "write",
            Self::OneSlot => "one_slot",
        }
    }

    fn needs(self) -> &'static [Need] {
        match self {
            Self::Mutex => &[],
            Self::Write => &[Need::Shared],
            Self::OneSlot => &[Need::Slots],
        }
    }
}

/// What a case asks of an engine or its fixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Fifo,
    Pushed,
    Shared,
    Slots,
    Registers,
    RegisterExpiry,
    Evict,
    CrashSafe,
    Processes,
    Restart,
    Lifeline,
}

impl Need {
    fn check(self, profile: &Profile, fixture: &dyn Fixture) -> Result<(), String> {
        let (met, why) = match self {
            Self::Fifo => (profile.fairness == Fairness::Fifo, "it serves waiters in no promised order"),
            Self::Pushed => (!matches!(profile.wakeup, Wakeup::Poll(_)), "its waiters poll"),
            Self::Shared => (profile.modes.shared, "it grants no shared claims"),
            Self::Slots => (profile.modes.slots, "it grants no slots"),
            Self::Registers => (profile.registers, "it keeps no registers"),
            Self::RegisterExpiry => (profile.register_expiry, "its registers do not expire"),
            Self::Evict => (profile.evict, "it cannot end a single claim by force"),
            Self::CrashSafe => {
                (profile.durability.survives_crash(), "it promises nothing to outlive a crash")
            }
            Self::Processes => (fixture.url("probe").is_some(), "no other process can reach it"),
            Self::Lifeline => {
                (profile.liveness == Liveness::Kernel, "it does not notice death through the kernel")
            }
            Self::Restart => {
                (fixture.cannot_restart().is_none(), fixture.cannot_restart().unwrap_or_default())
            }
        };
        if met { Ok(()) } else { Err(why.to_owned()) }
    }
}

/// Lists the cases of one theme: `name, needs, "clause"`. After `each_way`, a case runs over a
/// mutex, a write lock and a one-slot semaphore.
macro_rules! cases {
    ($theme:literal { $($name:ident [$($need:ident)*] $clause:literal)* }
        $(each_way { $($way_name:ident [$($way_need:ident)*] $way_clause:literal)* })?
        $(alone { $($alone_name:ident [$($alone_need:ident)*] $alone_clause:literal)* })?
    ) => {
        pub(super) fn cases() -> Vec<$crate::Case> {
            #[allow(unused_mut, reason = "a theme may have no case of some kinds")]
            let mut cases = vec![$($crate::Case {
                name: format!("{}::{}", $theme, stringify!($name)),
                clause: $clause,
                way: $crate::Way::Mutex,
                needs: &[$($crate::case::Need::$need),*],
                alone: false,
                run: |context| Box::pin($name(context)),
            }),*];
            $($(cases.extend($crate::Way::ALL.map(|way| $crate::Case {
                name: format!("{}::{}/{}", $theme, stringify!($way_name), way.name()),
                clause: $way_clause,
                way,
                needs: &[$($crate::case::Need::$way_need),*],
                alone: false,
                run: |context| Box::pin($way_name(context)),
            }));)*)?
            $($(cases.push($crate::Case {
                name: format!("{}::{}", $theme, stringify!($alone_name)),
                clause: $alone_clause,
                way: $crate::Way::Mutex,
                needs: &[$($crate::case::Need::$alone_need),*],
                alone: true,
                run: |context| Box::pin($alone_name(context)),
            });)*)?
            cases
        }
    };
}
pub(crate) use cases;
