use palisade_core::{Effect, Error, ErrorKind};

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the connection was closed")
}

/// An answer that none of our functions gives.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "the server answered something else than was asked").with_unknown_effect()
}

/// The same error for one of those whom it befell.
pub(crate) fn copy(error: &Error) -> Error {
    let copy = Error::new(error.kind(), error.message().to_owned());
    if error.effect() == Effect::Unknown { copy.with_unknown_effect() } else { copy }
}
