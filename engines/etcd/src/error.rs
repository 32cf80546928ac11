use palisade_core::{Error, ErrorKind};
use tonic::{Code, Status};

/// A failed call as ours. Whether it took effect is known only if the server itself said no.
pub(crate) fn failed(status: Status) -> Error {
    let (kind, message) = said(&status);
    let mapped = Error::new(kind, message);
    let mapped = if refused(&status) { mapped } else { mapped.with_unknown_effect() };
    mapped.because(status)
}

/// Whether the server looked at the request and said no.
fn refused(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::ResourceExhausted
            | Code::Unimplemented
    )
}

fn said(status: &Status) -> (ErrorKind, String) {
    let words = status.message().trim_start_matches("etcdserver: ").to_owned();
    match status.code() {
        Code::PermissionDenied => (
            ErrorKind::Denied,
            "the server refuses this user; see docs/engines/etcd.md for the rights that are needed"
                .to_owned(),
        ),
        Code::Unauthenticated if is_old_token(status) => {
            (ErrorKind::Unavailable, "the server asks to log in again".to_owned())
        }
        Code::Unauthenticated => (ErrorKind::Denied, format!("the server refuses: {words}")),
        Code::InvalidArgument if words.contains("user name is empty") => {
            (ErrorKind::Denied, "the server asks for a user and a password".to_owned())
        }
        Code::InvalidArgument if words.contains("authentication failed") => {
            (ErrorKind::Denied, "the server refuses this user or password".to_owned())
        }
        Code::ResourceExhausted if words.contains("space exceeded") => {
            (ErrorKind::Full, "the server's database is full (its quota is used up)".to_owned())
        }
        Code::InvalidArgument | Code::OutOfRange => {
            (ErrorKind::Invalid, format!("the server takes this for a mistake: {words}"))
        }
        Code::Unimplemented => (ErrorKind::Unsupported, format!("the server cannot do that: {words}")),
        Code::DeadlineExceeded => (ErrorKind::Timeout, "the server did not answer in time".to_owned()),
        Code::Cancelled => (ErrorKind::Unavailable, "the connection was lost".to_owned()),
        Code::Unavailable if words.contains("no leader") => {
            (ErrorKind::Unavailable, "the servers have no leader now".to_owned())
        }
        Code::Unavailable if words.contains("timed out") || words.contains("leader changed") => {
            (ErrorKind::Unavailable, format!("the servers could not decide in time: {words}"))
        }
        _ if is_transport(status) => (ErrorKind::Unavailable, "the connection was lost".to_owned()),
        code => (ErrorKind::Unavailable, format!("the server says {code:?}: {words}")),
    }
}

/// Whether the status was made on our side, because the connection failed.
fn is_transport(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// A login that the server has forgotten: it keeps them in memory, for minutes.
pub(crate) fn is_old_token(status: &Status) -> bool {
    status.message().contains("invalid auth token")
}

/// Whether a lease that a request named is no more.
pub(crate) fn is_lease_gone(error: &Error) -> bool {
    let status = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Status>());
    status
        .is_some_and(|status| status.code() == Code::NotFound && status.message().contains("lease not found"))
}

/// Whether the connection is of no use any more: broken, or to a server that can decide nothing.
pub(crate) fn ends_the_line(status: &Status) -> bool {
    is_transport(status)
        || is_old_token(status)
        || matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Internal | Code::Unknown
        )
}

/// Whether no answer came because the connection ended, or was left for another one.
pub(crate) fn went_unanswered(error: &Error) -> bool {
    let status = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Status>());
    status.is_some_and(|status| {
        is_transport(status) || matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded)
    })
}

/// An answer that none of our requests has.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "the server answered something else than was asked").with_unknown_effect()
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the connection was closed")
}

/// What others changed meanwhile, every time we looked.
pub(crate) fn contended() -> Error {
    Error::new(ErrorKind::Unavailable, "others changed it every time we tried; try again")
}

#[cfg(test)]
mod tests {
    use palisade_core::Effect;

    use super::*;

    #[test]
    fn servers_that_could_not_decide_in_time_may_yet() {
        for words in
            ["leader changed", "request timed out", "request timed out, possibly due to connection lost"]
        {
            let error = failed(Status::unavailable(format!("etcdserver: {words}")));
            assert_eq!(error.effect(), Effect::Unknown, "{words}");
        }
        let full = failed(Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
        assert_eq!((full.effect(), full.kind()), (Effect::None, ErrorKind::Full));
    }
}
