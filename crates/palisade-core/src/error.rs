use std::error::Error as StdError;
use std::fmt;

use crate::{InvalidName, InvalidTtl, Name};

/// The result of a verb.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A verb could not be carried out. *Held by another* is never an error.
///
/// Says what happened, to which resource on which engine, and answers two questions: could it go
/// better the next time ([`Error::is_transient`]), and could it have taken effect all the same
/// ([`Error::effect`]).
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    effect: Effect,
    message: String,
    engine: Option<String>,
    resource: Option<Name>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller asked for something that can never be: a bad name, TTL, URL or option.
    Invalid,
    /// The engine, or this build, does not offer what was asked.
    Unsupported,
    /// The engine cannot be reached, or is not able to serve now.
    Unavailable,
    /// No answer came within the time limit.
    Timeout,
    /// The engine refused this user.
    Denied,
    /// The engine has no room left: a full disk, a quota.
    Full,
    /// What the engine stores cannot be read: corrupt, another program's, or of a newer format.
    Corrupt,
    /// It contradicts claims that exist, such as another number of slots.
    Conflict,
    /// Waiting would be waiting for oneself.
    WouldDeadlock,
    /// Two tokens come from different sources and do not compare.
    SourceMismatch,
    /// The guard was lost, or the claim is gone.
    Lost,
    /// The client was closed.
    Closed,
    /// A fault in Palisade itself.
    Internal,
}

/// Whether a failed verb could have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It had none.
    None,
    /// It may have had one; asking again with the same claim tells.
    Unknown,
}

impl Error {
    /// An error of `kind` that had no effect.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect: Effect::None,
            message: message.into(),
            engine: None,
            resource: None,
            source: None,
        }))
    }

    /// The same error, but the verb may have taken effect.
    #[must_use]
    pub fn with_unknown_effect(mut self) -> Self {
        self.0.effect = Effect::Unknown;
        self
    }

    /// The same error for another one whom it befell, but for its cause, which the first one keeps.
    #[must_use]
    pub fn for_another(&self) -> Self {
        let copy = Self::new(self.kind(), self.message().to_owned());
        if self.effect() == Effect::Unknown { copy.with_unknown_effect() } else { copy }
    }

    /// The same error, on this engine. The first one to say so is believed.
    #[must_use]
    pub fn on_engine(mut self, engine: &str) -> Self {
        self.0.engine.get_or_insert_with(|| engine.to_owned());
        self
    }

    /// The same error, about this resource or register.
    #[must_use]
    pub fn about(mut self, resource: &Name) -> Self {
        self.0.resource.get_or_insert_with(|| resource.clone());
        self
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the verb could have taken effect.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether the same verb may succeed later without anyone's help.
    pub fn is_transient(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::Timeout)
    }

    /// The engine, if the error came from one.
    pub fn engine(&self) -> Option<&str> {
        self.0.engine.as_deref()
    }

    /// The resource or register, if the error is about one.
    pub fn resource(&self) -> Option<&Name> {
        self.0.resource.as_ref()
    }

    /// What happened, without engine, resource and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match (&self.0.resource, &self.0.engine) {
            (Some(resource), Some(engine)) => write!(f, " ({resource:?} on {engine})"),
            (Some(resource), None) => write!(f, " ({resource:?})"),
            (None, Some(engine)) => write!(f, " ({engine})"),
            (None, None) => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<InvalidName> for Error {
    fn from(problem: InvalidName) -> Self {
        Self::new(ErrorKind::Invalid, problem.to_string())
    }
}

impl From<InvalidTtl> for Error {
    fn from(problem: InvalidTtl) -> Self {
        Self::new(ErrorKind::Invalid, problem.to_string())
    }
}
