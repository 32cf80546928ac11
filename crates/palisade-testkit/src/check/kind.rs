use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use super::linear::{Budget, Searched, search};
use super::models::{
    FencedMutex, Kv, LockStep, Mutex, OwnerMutex, Permits, Register, Rw, Versioned, from_holds, from_records,
};
use crate::history::{Call, Hold, HoldMode, Op};

/// Which model a history is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// A register: read, write, replace on condition.
    Register,
    /// A store: get, put, append, each key on its own.
    Kv,
    /// A lock that is free or taken.
    Mutex,
    /// A lock that only its owner gives back.
    OwnerMutex,
    /// A lock whose tokens rise as well.
    FencedMutex,
    /// Readers and writers.
    Rw,
    /// So many slots; `None` if the history itself says how many.
    Permits(Option<u32>),
    /// A register with versions, and a fence.
    Versioned,
}

impl ModelKind {
    /// The names of all models, as on the command line.
    pub const NAMES: [&'static str; 8] =
        ["register", "kv", "mutex", "owner-mutex", "fenced-mutex", "rw", "permits", "versioned"];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Kv => "kv",
            Self::Mutex => "mutex",
            Self::OwnerMutex => "owner-mutex",
            Self::FencedMutex => "fenced-mutex",
            Self::Rw => "rw",
            Self::Permits(_) => "permits",
            Self::Versioned => "versioned",
        }
    }

    /// Whether `call` is one that it knows.
    pub const fn knows(self, call: &Call) -> bool {
        match self {
            Self::Register => matches!(call, Call::Read | Call::Write { .. } | Call::Cas { .. }),
            Self::Kv => matches!(call, Call::Read | Call::Write { .. } | Call::Append { .. }),
            Self::Versioned => matches!(call, Call::Read | Call::Open { .. } | Call::Write { .. }),
            _ => matches!(call, Call::Acquire { .. } | Call::Release { .. }),
        }
    }

    /// Whether a resource that is asked for in `mode` can be one of these: a run of the harness has
    /// locks of every kind in one history.
    pub const fn has_mode(self, mode: HoldMode) -> bool {
        match self {
            Self::Permits(_) => matches!(mode, HoldMode::Slot(_)),
            Self::Rw => matches!(mode, HoldMode::Exclusive | HoldMode::Shared),
            Self::Mutex | Self::OwnerMutex | Self::FencedMutex => matches!(mode, HoldMode::Exclusive),
            Self::Register | Self::Kv | Self::Versioned => false,
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::Permits(Some(of)) = self { write!(f, "={of}") } else { Ok(()) }
    }
}

impl FromStr for ModelKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(of) = text.strip_prefix("permits=") {
            let of = of.parse().ok().filter(|of| *of > 0);
            return of.map(|of| Self::Permits(Some(of))).ok_or_else(|| format!("{text}: how many permits?"));
        }
        match text {
            "register" => Ok(Self::Register),
            "kv" => Ok(Self::Kv),
            "mutex" => Ok(Self::Mutex),
            "owner-mutex" => Ok(Self::OwnerMutex),
            "fenced-mutex" => Ok(Self::FencedMutex),
            "rw" => Ok(Self::Rw),
            "permits" => Ok(Self::Permits(None)),
            "versioned" => Ok(Self::Versioned),
            _ => Err(format!("no model is called {text:?}; there are {}", Self::NAMES.join(", "))),
        }
    }
}

/// What happened on one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'s, 'h> {
    /// Its operations.
    pub(crate) ops: &'s [&'h Op],
    /// Its grants, where it is known how long their holders believed in them.
    pub(crate) holds: Option<&'s [&'h Hold]>,
    /// For a register: whether the tokens of its writes must not fall.
    pub(crate) fenced: bool,
}

impl Subject<'_, '_> {
    fn lock_steps(&self) -> Vec<super::linear::Timed<LockStep>> {
        self.holds.map_or_else(|| from_records(self.ops), from_holds)
    }

    /// How many slots its claims say there are.
    fn slots(&self) -> Option<u32> {
        self.ops.iter().find_map(|op| match op.call {
            Call::Acquire { mode: HoldMode::Slot(of) } => Some(of),
            _ => None,
        })
    }

    /// Holds it to a model. Says how many steps there were, too.
    ///
    /// # Errors
    /// If the history does not say what the model has to know.
    pub(crate) fn judge(&self, kind: ModelKind, budget: Budget) -> Result<(usize, Searched), String> {
        macro_rules! judge {
            ($model:expr, $steps:expr) => {{
                let steps = $steps;
                Ok((steps.len(), search(&$model, &steps, budget)))
            }};
        }
        match kind {
            ModelKind::Register => judge!(Register::default(), Register::steps(self.ops)),
            ModelKind::Kv => judge!(Kv::of(self.ops), Kv::steps(self.ops)),
            ModelKind::Mutex => judge!(Mutex, self.lock_steps()),
            ModelKind::OwnerMutex => judge!(OwnerMutex, self.lock_steps()),
            ModelKind::FencedMutex => judge!(FencedMutex, self.lock_steps()),
            ModelKind::Rw => judge!(Rw, self.lock_steps()),
            ModelKind::Permits(of) => match of.or_else(|| self.slots()) {
                Some(of) => judge!(Permits { of }, self.lock_steps()),
                None => Err("the history does not say how many permits there are; say permits=N".to_owned()),
            },
            ModelKind::Versioned => {
                let model = Versioned { fenced: self.fenced, history: PhantomData };
                judge!(model, Versioned::steps(self.ops))
            }
        }
    }
}
