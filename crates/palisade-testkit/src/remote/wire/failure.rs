use palisade_core::{Effect, Error, ErrorKind, Name};
use serde::{Deserialize, Serialize};

/// An [`Error`] of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Failure {
    kind: String,
    unknown_effect: bool,
    message: String,
    resource: Option<String>,
}

const KINDS: &[(ErrorKind, &str)] = &[
    (ErrorKind::Invalid, "invalid"),
    (ErrorKind::Unsupported, "unsupported"),
    (ErrorKind::Unavailable, "unavailable"),
    (ErrorKind::Timeout, "timeout"),
    (ErrorKind::Denied, "denied"),
    (ErrorKind::Full, "full"),
    (ErrorKind::Corrupt, "corrupt"),
    (ErrorKind::Conflict, "conflict"),
    (ErrorKind::WouldDeadlock, "would-deadlock"),
    (ErrorKind::SourceMismatch, "source-mismatch"),
    (ErrorKind::Lost, "lost"),
    (ErrorKind::Closed, "closed"),
];

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let kind = KINDS.iter().find(|(kind, _)| *kind == error.kind()).map_or("internal", |(_, name)| name);
        Self {
            kind: kind.to_owned(),
            unknown_effect: error.effect() == Effect::Unknown,
            message: error.message().to_owned(),
            resource: error.resource().map(ToString::to_string),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let known = KINDS.iter().find(|(_, name)| *name == failure.kind);
        let mut error = Self::new(known.map_or(ErrorKind::Internal, |(kind, _)| *kind), failure.message);
        if failure.unknown_effect {
            error = error.with_unknown_effect();
        }
        match failure.resource.and_then(|name| Name::from_stored(&name).ok()) {
            Some(resource) => error.about(&resource),
            None => error,
        }
    }
}
