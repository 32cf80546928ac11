use std::error::Error as _;

use palisade_core::{Error, ErrorKind};
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::PostgresConfig;

type Failure = tokio_postgres::Error;

/// A failed call as ours. It had no effect only if the server itself said no and goes on serving this connection.
pub(crate) fn failed(error: Failure) -> Error {
    let Some(said) = error.as_db_error() else {
        let mapped = Error::new(ErrorKind::Unavailable, "the connection was lost").with_unknown_effect();
        return mapped.because(error);
    };
    let mapped = Error::new(kind(said.code()), message(said));
    let mapped = if ends_the_line(&error) { mapped.with_unknown_effect() } else { mapped };
    mapped.because(error)
}

/// Whether the same statement may be sent again at once: it had no effect, and nobody is to blame.
pub(crate) fn is_worth_a_retry(error: &Failure) -> bool {
    let codes = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
    ];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Whether somebody was in the way for too long.
pub(crate) fn is_blocked(error: &Failure) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether the connection is of no use any more: broken, or to a server that decides nothing.
pub(crate) fn ends_the_line(error: &Failure) -> bool {
    match error.as_db_error() {
        None => true,
        Some(said) => {
            matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
                || *said.code() == SqlState::READ_ONLY_SQL_TRANSACTION
                // What a proxy says for a server that it lost: the statement may have been done.
                || ["57P", "08", "58"].iter().any(|class| said.code().code().starts_with(class))
        }
    }
}

fn kind(code: &SqlState) -> ErrorKind {
    match code.code() {
        "42501" | "28000" | "28P01" => ErrorKind::Denied,
        "53100" | "53200" | "54000" => ErrorKind::Full,
        "57014" | "55P03" => ErrorKind::Timeout,
        "3D000" => ErrorKind::Invalid,
        "PA001" => ErrorKind::Unsupported,
        "XX001" | "XX002" | "42883" | "42P01" | "3F000" | "42804" => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    }
}

fn message(said: &DbError) -> String {
    match said.code().code() {
        "25006" => "the server is a replica, or read-only, and decides nothing".to_owned(),
        "57P01" | "57P02" | "57P03" => format!("the server is not able to serve now: {}", said.message()),
        "53300" => format!("the server has no connection left: {}", said.message()),
        "53100" => "the server's disk is full".to_owned(),
        code => format!("the server says {code}: {}", said.message()),
    }
}

/// Why no connection was made.
pub(crate) fn refused(config: &PostgresConfig, error: Failure) -> Error {
    let place = config.place();
    let Some(said) = error.as_db_error() else {
        return unanswered(config, &place, error);
    };
    let message = match said.code().code() {
        "28P01" | "28000" => {
            let user = config.login.user.as_deref().unwrap_or("…");
            format!("{place} refuses user {user:?} or its password: {}", said.message())
        }
        "08P01" => format!("{place}: {}; is a pooler set up for this database?", said.message()),
        _ => format!("{place}: {}", said.message()),
    };
    Error::new(kind(said.code()), message).because(error)
}

fn unanswered(config: &PostgresConfig, place: &str, error: Failure) -> Error {
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let tls = config.tls.is_some();
    let (kind, message) = if tls && why.contains("certificate") {
        let message =
            format!("{place} is not who it should be, or its authority is not trusted (tls-ca): {why}");
        (ErrorKind::Denied, message)
    } else if tls && why.contains("does not support TLS") {
        (ErrorKind::Unavailable, format!("{place} does not encrypt; nothing was sent to it"))
    } else if why.contains("password missing") {
        let message = format!("{place} asks for a password; write user:password@, or see password-env");
        (ErrorKind::Denied, message)
    } else if why.contains("unexpected message") {
        (ErrorKind::Unavailable, format!("{place} does not speak to us: {why}; is it PostgreSQL?"))
    } else {
        return Error::unreachable(place, &error);
    };
    Error::new(kind, message).because(error)
}
