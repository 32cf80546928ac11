use palisade_core::{Error, ErrorKind};
use redis::{ErrorKind as Redis, RedisError, ServerErrorKind};

/// A failed call as ours. Whether it took effect is known only if the server itself said no.
pub(crate) fn failed(error: RedisError) -> Error {
    let (kind, message) = said(&error);
    let mapped = Error::new(kind, message);
    let refused = matches!(error.kind(), Redis::Server(_)) || error.code().is_some();
    let mapped = if refused { mapped } else { mapped.with_unknown_effect() };
    mapped.because(error)
}

fn said(error: &RedisError) -> (ErrorKind, String) {
    let detail = error.detail().unwrap_or_default();
    match error.code().unwrap_or_default() {
        "NOPERM" => (
            ErrorKind::Denied,
            format!("the server refuses: {detail}; see docs/engines/redis.md for the rights that are needed"),
        ),
        "NOAUTH" | "WRONGPASS" => (ErrorKind::Denied, "the server refuses this user or password".to_owned()),
        "OOM" => (ErrorKind::Full, "the server has no memory left (maxmemory)".to_owned()),
        "MISCONF" => {
            (ErrorKind::Full, "the server cannot write to its disk, and takes no writes meanwhile".to_owned())
        }
        "READONLY" => (ErrorKind::Unavailable, "the server is a replica now".to_owned()),
        "LOADING" => (ErrorKind::Unavailable, "the server is still loading its data".to_owned()),
        "MASTERDOWN" | "CLUSTERDOWN" => {
            (ErrorKind::Unavailable, format!("the servers are not able to serve now: {detail}"))
        }
        "BUSY" => (ErrorKind::Unavailable, "the server is busy with somebody's script".to_owned()),
        "WRONGTYPE" => (ErrorKind::Corrupt, "there is something else at a key of Palisade's".to_owned()),
        "" => unanswered(error),
        code => (ErrorKind::Unavailable, format!("the server says {code} {detail}")),
    }
}

fn unanswered(error: &RedisError) -> (ErrorKind, String) {
    match error.kind() {
        Redis::AuthenticationFailed => {
            (ErrorKind::Denied, "the server refuses this user or password".to_owned())
        }
        Redis::Server(ServerErrorKind::ReadOnly) => {
            (ErrorKind::Unavailable, "the server is a replica now".to_owned())
        }
        _ if error.is_timeout() => (ErrorKind::Timeout, "the server did not answer in time".to_owned()),
        _ if error.is_connection_refusal() => {
            (ErrorKind::Unavailable, "nobody listens at that address".to_owned())
        }
        _ if error.is_io_error() || error.is_connection_dropped() => {
            (ErrorKind::Unavailable, "the connection was lost".to_owned())
        }
        _ => (ErrorKind::Unavailable, "the server could not do it".to_owned()),
    }
}

/// An answer that none of our scripts gives.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "the server answered something else than was asked").with_unknown_effect()
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the connection was closed")
}
