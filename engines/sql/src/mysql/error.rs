use mysql_async::{DriverError, ServerError};
use palisade_core::{Error, ErrorKind};

use super::MySqlConfig;

type Failure = mysql_async::Error;

/// The connection ended before there was an answer.
pub(super) fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection was lost").with_unknown_effect()
}

/// A failed call as ours. It had no effect only if the server itself said no, before it was done.
pub(super) fn failed(error: Failure) -> Error {
    let mapped = match &error {
        Failure::Server(said) => {
            let mapped = Error::new(kind(said.code), message(said));
            if is_in_doubt(said.code) { mapped.with_unknown_effect() } else { mapped }
        }
        Failure::Driver(DriverError::PacketTooLarge) => {
            let message = "it is greater than the server's max_allowed_packet; nothing was sent";
            Error::new(ErrorKind::Invalid, message)
        }
        _ => lost(),
    };
    mapped.because(error)
}

/// Whether the same statement may be sent again at once: it had no effect, and nobody is to blame. What two nodes of a
/// Galera cluster did to each other comes as a deadlock.
pub(super) fn is_worth_a_retry(error: &Failure) -> bool {
    matches!(error, Failure::Server(said) if matches!(said.code, 1205 | 1213 | 1020))
}

/// Whether the connection is of no use any more: broken, or to a server that decides nothing.
pub(super) fn ends_the_line(error: &Failure) -> bool {
    match error {
        Failure::Server(said) => is_read_only(said.code) || is_leaving(said.code),
        _ => true,
    }
}

/// Interrupted, killed, or failed in the commit: it may have been done.
fn is_in_doubt(code: u16) -> bool {
    matches!(code, 1180 | 1317 | 1927 | 1969 | 3024 | 3169) || is_leaving(code)
}

fn is_read_only(code: u16) -> bool {
    matches!(code, 1290 | 1792 | 1836 | 3100)
}

/// The server goes down, or a node is no part of its cluster any more.
fn is_leaving(code: u16) -> bool {
    matches!(code, 1047 | 1053 | 1077 | 1079 | 1152 | 1184 | 1927 | 4031)
}

fn kind(code: u16) -> ErrorKind {
    match code {
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 | 3118 => ErrorKind::Denied,
        1021 | 1114 | 1041 | 1037 => ErrorKind::Full,
        1205 | 1317 | 1969 | 3024 => ErrorKind::Timeout,
        1049 => ErrorKind::Invalid,
        1665 => ErrorKind::Unsupported,
        1146 | 1318 | 1054 | 30001 | 1712 => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    }
}

fn message(said: &ServerError) -> String {
    match said.code {
        code if is_read_only(code) => "the server is a replica, or read-only, and decides nothing".to_owned(),
        code if is_leaving(code) => format!("the server is not able to serve now: {}", said.message),
        1040 | 1203 | 1226 => format!("the server has no connection left: {}", said.message),
        1305 => format!("{}; is the schema being made anew?", said.message),
        1021 | 1114 => "the server's disk is full".to_owned(),
        1665 => "the server logs statements instead of rows (binlog_format), which READ COMMITTED forbids"
            .to_owned(),
        code => format!("the server says {code}: {}", said.message),
    }
}

/// Why no connection was made.
pub(super) fn refused(config: &MySqlConfig, error: Failure) -> Error {
    let place = config.place();
    let (kind, message) = match &error {
        Failure::Server(said) => {
            let message = match said.code {
                1045 | 1698 => {
                    let user = config.login.user.as_deref().unwrap_or("…");
                    format!("{place} refuses user {user:?} or its password: {}", said.message)
                }
                _ => format!("{place}: {}", message(said)),
            };
            (kind(said.code), message)
        }
        Failure::Driver(DriverError::NoClientSslFlagFromServer) => {
            (ErrorKind::Unavailable, format!("{place} does not encrypt; nothing was sent to it"))
        }
        Failure::Io(why) if config.tls.is_some() && why.to_string().contains("certificate") => {
            let message =
                format!("{place} is not who it should be, or its authority is not trusted (tls-ca): {why}");
            (ErrorKind::Denied, message)
        }
        Failure::Io(why) if config.tls.is_some() && why.to_string().contains("fatal alert") => {
            let message =
                format!("{place} does not accept how we encrypt, or our certificate (tls-cert): {why}");
            (ErrorKind::Denied, message)
        }
        Failure::Io(why) => return Error::unreachable(&place, why),
        other => (ErrorKind::Unavailable, format!("{place} does not speak to us: {other}; is it MySQL?")),
    };
    Error::new(kind, message).because(error)
}

#[cfg(test)]
mod tests {
    use palisade_core::Effect;

    use super::*;

    fn said(code: u16) -> Failure {
        Failure::Server(ServerError { code, message: "no".to_owned(), state: "HY000".to_owned() })
    }

    #[test]
    fn what_was_undone_is_sent_again_and_what_is_in_doubt_is_not() {
        for code in [1205, 1213] {
            assert!(is_worth_a_retry(&said(code)) && !ends_the_line(&said(code)));
            assert_eq!(failed(said(code)).effect(), Effect::None);
        }
        for code in [1317, 1180, 1053, 1927] {
            assert!(!is_worth_a_retry(&said(code)));
            assert_eq!(failed(said(code)).effect(), Effect::Unknown);
        }
        assert!(ends_the_line(&said(1290)), "it decides nothing");
        assert_eq!(failed(said(1370)).kind(), ErrorKind::Denied);
        let large = Failure::Driver(DriverError::PacketTooLarge);
        assert!(ends_the_line(&large) && failed(large).effect() == Effect::None);
    }
}
