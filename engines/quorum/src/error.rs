use palisade_core::{Effect, Error, ErrorKind};

/// What this engine is called in errors.
pub(crate) const ENGINE: &str = "redlock";

/// An error that can be told to several callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) effect: Effect,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), effect: Effect::None }
    }

    pub(crate) fn of(error: &Error) -> Self {
        Self { kind: error.kind(), message: error.message().to_owned(), effect: error.effect() }
    }

    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Timeout)
    }

    /// The same, but nothing can have come of it.
    pub(crate) fn unaffecting(self) -> Self {
        Self { effect: Effect::None, ..self }
    }

    /// The same, but something may have come of it.
    pub(crate) fn in_doubt(self) -> Self {
        Self { effect: Effect::Unknown, ..self }
    }

    pub(crate) fn error(&self) -> Error {
        let error = Error::new(self.kind, self.message.clone()).on_engine(ENGINE);
        if self.effect == Effect::Unknown { error.with_unknown_effect() } else { error }
    }
}

pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).on_engine(ENGINE)
}

pub(crate) fn closed() -> Error {
    error(ErrorKind::Closed, "the connection was closed")
}

/// Not enough nodes answered: the kind is that of a node that refused for good, if one did.
pub(crate) fn too_few(answered: usize, of: usize, troubles: &[(String, Failure)]) -> Failure {
    let kind = troubles
        .iter()
        .map(|(_, failure)| failure)
        .find(|failure| !failure.is_transient())
        .map_or(ErrorKind::Unavailable, |failure| failure.kind);
    let message =
        format!("{answered} of {of} nodes answered, a majority is {}{}", of / 2 + 1, listed(troubles));
    Failure { kind, message, effect: Effect::Unknown }
}

/// What came of each node that did not answer as it should, in parentheses.
pub(crate) fn listed(troubles: &[(String, Failure)]) -> String {
    let each: Vec<String> =
        troubles.iter().map(|(node, failure)| format!("{node}: {}", failure.message)).collect();
    if each.is_empty() { String::new() } else { format!(" ({})", each.join("; ")) }
}
