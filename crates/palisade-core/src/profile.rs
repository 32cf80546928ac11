use std::fmt;
use std::time::Duration;

use crate::{Error, ErrorKind, Result};

/// What an engine promises. A caller reads it, or demands one with [`Demand`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The engine's name, as in docs and errors.
    pub engine: &'static str,
    /// Who can take part.
    pub reach: Reach,
    /// How its decisions relate to real time.
    pub consistency: Consistency,
    /// In which order waiters are served.
    pub fairness: Fairness,
    /// Where tokens come from, and on what their rising rests.
    pub tokens: TokenPromise,
    /// How a waiter learns that it is its turn.
    pub wakeup: Wakeup,
    /// How the engine notices a dead holder.
    pub liveness: Liveness,
    /// What outlives what.
    pub durability: Durability,
    /// Which modes it can grant.
    pub modes: Modes,
    /// Whether claims of different families on one name exclude each other.
    pub families: FamilyScope,
    /// Whether it keeps registers.
    pub registers: bool,
    /// Whether a register can expire by itself.
    pub register_expiry: bool,
    /// Whether it can end a single claim by force.
    pub evict: bool,
    /// What is subtracted from [`crate::Grant::valid_until`] to make up for clocks that differ.
    pub drift: Drift,
    /// How many claims one renewal or withdrawal may carry.
    pub batch: usize,
    /// Round trips to the engine per verb, uncontended.
    pub trips: Trips,
}

/// Who can take part in deciding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Tasks of one process.
    Process,
    /// Processes of one host.
    Host,
    /// Hosts that reach the same servers.
    Network,
}

/// How decisions relate to real time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// There is one order of decisions and it agrees with real time, also across failover.
    Linearizable,
    /// So it is until a failover, which may forget the last decisions.
    UntilFailover,
    /// It rests on assumptions about clocks and pauses.
    ClockBound,
}

/// In which order waiters are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fairness {
    /// First come, first served.
    Fifo,
    /// In no promised order.
    None,
}

/// Where tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenPromise {
    /// What is counted.
    pub source: &'static str,
    /// What their rising rests on, if on anything beyond the engine's own word.
    pub assumes: Option<&'static str>,
}

/// How a waiter learns that it is its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// It is told.
    Push,
    /// It looks again this often.
    Poll(Duration),
    /// It is told as a rule, and looks again this often where nobody can tell it.
    PushOrPoll(Duration),
}

/// How the engine notices a dead holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The kernel tells, within milliseconds; a stopped process is bounded by its TTL.
    Kernel,
    /// By the TTL of each claim.
    Ttl,
    /// By the timeout of the session that carries the claims.
    Session,
    /// By the end of a connection: whoever loses it may hear of it after the next one came in. Only the connection that
    /// asked for a claim can renew it or give it back.
    Connection,
}

/// What outlives what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing outlives the process.
    Process,
    /// What outlives a crash is up to the engine's own settings, which Palisade does not vouch for.
    Settings,
    /// Acknowledged register writes and the order of tokens outlive a crash of the engine.
    Crash,
    /// They outlive the loss of a minority of servers too.
    Minority,
}

impl Durability {
    /// Whether acknowledged register writes and the order of tokens outlive a crash for sure.
    pub fn survives_crash(self) -> bool {
        match self {
            Self::Process | Self::Settings => false,
            Self::Crash | Self::Minority => true,
        }
    }
}

/// Which modes an engine can grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// [`crate::Mode::Shared`].
    pub shared: bool,
    /// [`crate::Mode::Slot`].
    pub slots: bool,
}

/// Whether claims of different families on one name exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyScope {
    /// One name is one resource, whatever recipe asks.
    OneQueue,
    /// Each family has a resource of its own behind the name.
    Apart,
}

/// A margin for clocks that run at different rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// A fixed part.
    pub fixed: Duration,
    /// A part of the TTL, in thousandths.
    pub per_mille: u32,
}

impl Drift {
    /// The margin for a TTL.
    pub fn margin(self, ttl: Duration) -> Duration {
        self.fixed + ttl * self.per_mille / 1000
    }
}

/// Round trips to the engine per verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trips {
    /// To take a free resource.
    pub claim: u8,
    /// To give it back.
    pub withdraw: u8,
    /// To renew a batch.
    pub renew: u8,
}

/// What a caller insists on. An engine that cannot promise it is refused at connect time.
///
/// ```
/// use palisade_core::Demand;
/// let profile = palisade_core::memory::profile();
/// assert!(Demand::new().linearizable().fair().check(&profile).is_ok());
/// let refused = Demand::new().network().check(&profile).unwrap_err();
/// assert!(refused.to_string().contains("one process"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demand(Vec<Wish>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Linearizable,
    Fenced,
    Fair,
    Pushed,
    Registers,
    RegisterExpiry,
    Shared,
    Slots,
    Evict,
    CrashSafe,
    Host,
    Network,
}

macro_rules! wishes {
    ($($(#[$doc:meta])* $method:ident = $wish:ident;)*) => {
        $($(#[$doc])* #[must_use] pub fn $method(self) -> Self { self.and(Wish::$wish) })*
    };
}

impl Demand {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    wishes! {
        /// One order of decisions that agrees with real time, also across failover.
        linearizable = Linearizable;
        /// Tokens whose rising rests on nothing but the engine, and registers that check them.
        fenced = Fenced;
        /// First come, first served.
        fair = Fair;
        /// Waiters are told, they do not poll.
        pushed = Pushed;
        /// Registers.
        registers = Registers;
        /// Registers that can expire.
        register_expiry = RegisterExpiry;
        /// Shared claims.
        shared = Shared;
        /// Numbered slots.
        slots = Slots;
        /// Ending a single claim by force.
        evict = Evict;
        /// Tokens and registers that outlive a crash of the engine.
        crash_safe = CrashSafe;
        /// At least all processes of one host.
        host = Host;
        /// Many hosts.
        network = Network;
    }

    fn and(mut self, wish: Wish) -> Self {
        if !self.0.contains(&wish) {
            self.0.push(wish);
        }
        self
    }

    /// Parses names separated by commas, as on a command line: `linearizable,fenced`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name that is no demand, listing those that are.
    pub fn parse(text: &str) -> Result<Self> {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).try_fold(
            Self::new(),
            |demand, name| {
                let wish = Wish::ALL.iter().find(|wish| wish.name() == name).ok_or_else(|| {
                    let known: Vec<_> = Wish::ALL.iter().map(|wish| wish.name()).collect();
                    Error::new(
                        ErrorKind::Invalid,
                        format!("{name:?} is no demand; there are {}", known.join(", ")),
                    )
                })?;
                Ok(demand.and(*wish))
            },
        )
    }

    /// Checks the demand against what an engine promises.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], naming every unmet wish with the reason.
    pub fn check(&self, profile: &Profile) -> Result<()> {
        let unmet: Vec<String> = self
            .0
            .iter()
            .filter_map(|wish| wish.unmet(profile).map(|why| format!("{}: {why}", wish.name())))
            .collect();
        if unmet.is_empty() {
            return Ok(());
        }
        let message = format!("the engine does not promise what was demanded; {}", unmet.join("; "));
        Err(Error::new(ErrorKind::Unsupported, message).on_engine(profile.engine))
    }
}

impl Wish {
    const ALL: [Self; 12] = [
        Self::Linearizable,
        Self::Fenced,
        Self::Fair,
        Self::Pushed,
        Self::Registers,
        Self::RegisterExpiry,
        Self::Shared,
        Self::Slots,
        Self::Evict,
        Self::CrashSafe,
        Self::Host,
        Self::Network,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Fenced => "fenced",
            Self::Fair => "fair",
            Self::Pushed => "pushed",
            Self::Registers => "registers",
            Self::RegisterExpiry => "register-expiry",
            Self::Shared => "shared",
            Self::Slots => "slots",
            Self::Evict => "evict",
            Self::CrashSafe => "crash-safe",
            Self::Host => "host",
            Self::Network => "network",
        }
    }

    /// Why the profile does not grant this wish.
    fn unmet(self, profile: &Profile) -> Option<String> {
        let (met, why) = match self {
            Self::Linearizable => (
                profile.consistency == Consistency::Linearizable,
                format!("its consistency is {}", profile.consistency),
            ),
            Self::Fenced => (
                profile.registers && profile.tokens.assumes.is_none(),
                match profile.tokens.assumes {
                    Some(assumes) => format!("its tokens assume {assumes}"),
                    None => "it keeps no registers that check tokens".to_owned(),
                },
            ),
            Self::Fair => {
                (profile.fairness == Fairness::Fifo, "it serves waiters in no promised order".to_owned())
            }
            Self::Pushed => (profile.wakeup == Wakeup::Push, format!("its waiters are {}", profile.wakeup)),
            Self::Registers => (profile.registers, "it keeps no registers".to_owned()),
            Self::RegisterExpiry => (profile.register_expiry, "its registers do not expire".to_owned()),
            Self::Shared => (profile.modes.shared, "it grants no shared claims".to_owned()),
            Self::Slots => (profile.modes.slots, "it grants no slots".to_owned()),
            Self::Evict => (profile.evict, "it cannot end a single claim by force".to_owned()),
            Self::CrashSafe => (profile.durability.survives_crash(), format!("{}", profile.durability)),
            Self::Host => (profile.reach >= Reach::Host, format!("it reaches {} only", profile.reach)),
            Self::Network => (profile.reach >= Reach::Network, format!("it reaches {} only", profile.reach)),
        };
        (!met).then_some(why)
    }
}

macro_rules! display {
    ($type:ty { $($pattern:pat => $text:expr,)* }) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($pattern => write!(f, $text),)* }
            }
        }
    };
}

display!(Reach {
    Self::Process => "one process",
    Self::Host => "one host",
    Self::Network => "many hosts",
});
display!(Consistency {
    Self::Linearizable => "linearizable",
    Self::UntilFailover => "linearizable until a failover",
    Self::ClockBound => "bound to clocks",
});
display!(Fairness {
    Self::Fifo => "first come, first served",
    Self::None => "no promised order",
});
display!(Wakeup {
    Self::Push => "pushed",
    Self::Poll(every) => "polled every {every:?}",
    Self::PushOrPoll(every) => "pushed as a rule, else polled every {every:?}",
});
display!(Liveness {
    Self::Kernel => "the kernel tells, in milliseconds",
    Self::Ttl => "by TTL",
    Self::Session => "by session timeout",
    Self::Connection => "by connection",
});
display!(Durability {
    Self::Process => "nothing outlives the process",
    Self::Settings => "as the server's persistence is set up; none is promised",
    Self::Crash => "survives a crash",
    Self::Minority => "survives the loss of a minority",
});
display!(FamilyScope {
    Self::OneQueue => "one name is one resource",
    Self::Apart => "each family apart",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unmet_wish_is_named_with_its_reason() {
        let mut profile = crate::memory::profile();
        profile.tokens.assumes = Some("a promoted replica's clock");
        let error = Demand::parse("network, fenced,fair").unwrap().check(&profile).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let message = error.to_string();
        assert!(message.contains("network: it reaches one process only"), "{message}");
        assert!(message.contains("fenced: its tokens assume a promoted replica's clock"), "{message}");
        assert!(!message.contains("fair"), "{message}");
    }

    #[test]
    fn unknown_demands_list_the_known_ones() {
        let message = Demand::parse("fenced,fast").unwrap_err().to_string();
        assert!(message.contains("\"fast\"") && message.contains("linearizable"), "{message}");
    }
}
