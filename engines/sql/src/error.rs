use palisade_core::{Error, ErrorKind};

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the connection was closed")
}

/// An answer that none of our functions gives.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "the server answered something else than was asked").with_unknown_effect()
}
