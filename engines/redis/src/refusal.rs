//! Why no connection could be made, and what to do about it.

use std::fmt;
use std::time::Duration;

use palisade_core::{Error, ErrorKind};
use redis::{ErrorKind as Redis, RedisError};

use crate::config::Login;
use crate::error::failed;

/// What somebody was asked when a connection was to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt<'a> {
    /// Whether the connection was to be encrypted.
    pub(crate) tls: bool,
    pub(crate) login: &'a Login,
    pub(crate) whom: Whom,
}

/// Who was meant to be there. Sentinels have logins of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    Server,
    Sentinel,
}

impl Attempt<'_> {
    /// The error of an attempt that failed. What is understood comes without its cause, which would only
    /// repeat it in other words.
    pub(crate) fn refused(&self, place: &impl fmt::Display, error: RedisError) -> Error {
        let text = error.to_string();
        if error.kind() == Redis::RESP3NotSupported {
            let message = format!("the server at {place} is too old: Redis 6.2 or newer is needed");
            return Error::new(ErrorKind::Unsupported, message);
        }
        if text.contains("certificate") {
            let remedy = if text.contains("UnknownIssuer") || text.contains("BadSignature") {
                "; if an authority of your own signed it, name that with tls-ca"
            } else if text.contains("CaUsedAsEndEntity") {
                "; it is an authority's own certificate: give the server one that the authority signs"
            } else {
                ""
            };
            let message = format!("the certificate of {place} is not trusted: {text}{remedy}");
            return Error::new(ErrorKind::Unavailable, message);
        }
        let known = self.by_the_server(&error).or_else(|| self.by_the_network(&error, &text));
        let cannot = format!("cannot connect to {place}");
        match known {
            Some((kind, why)) => Error::new(kind, format!("{cannot}: {why}")),
            None => {
                let cause = failed(error);
                Error::new(cause.kind(), format!("{cannot}: {}", cause.message())).because(cause)
            }
        }
    }

    /// The error of an attempt that came to no end.
    pub(crate) fn unanswered(&self, place: &impl fmt::Display, limit: Duration) -> Error {
        let why = self.silence();
        let message = format!("cannot connect to {place}: no answer within {limit:?} (connect-timeout){why}");
        Error::new(ErrorKind::Unavailable, message)
    }

    /// A server without TLS waits for the end of a line that a TLS client never sends.
    fn silence(&self) -> &'static str {
        if self.tls { "; if it speaks no TLS, write redis instead of rediss" } else { "" }
    }

    /// What the server itself said.
    fn by_the_server(&self, error: &RedisError) -> Option<(ErrorKind, String)> {
        let detail = error.detail().unwrap_or_default();
        let user = self.login.user.as_deref().unwrap_or("default");
        let refused = error.kind() == Redis::AuthenticationFailed;
        match error.code().unwrap_or_default() {
            "NOAUTH" | "WRONGPASS" if self.login.password.is_none() => {
                let how = match self.whom {
                    Whom::Server => {
                        "write redis://user:password@host, or name where it is kept with password-env or password-file"
                    }
                    Whom::Sentinel => {
                        "name where it is kept with sentinel-password-env or sentinel-password-file"
                    }
                };
                Some((ErrorKind::Denied, format!("it asks for a password, and none was given; {how}")))
            }
            code if refused || matches!(code, "NOAUTH" | "WRONGPASS") => {
                let message = format!("it refuses user {user:?} with this password, or knows no such user");
                Some((ErrorKind::Denied, message))
            }
            "DENIED" => {
                let message = "it is in protected mode, and serves its own host only until it has a password";
                Some((ErrorKind::Denied, message.to_owned()))
            }
            "ERR" if detail.contains("DB index") => {
                let message = "it has no database of that number; the number stands after the host, as in redis://host/2";
                Some((ErrorKind::Invalid, message.to_owned()))
            }
            "ERR" if self.whom == Whom::Sentinel && detail.contains("unknown command") => {
                let message = "it is no Sentinel; name the Sentinels, which mostly listen at port 26379, or write redis: for the server itself";
                Some((ErrorKind::Unsupported, message.to_owned()))
            }
            "ERR" if detail.contains("cluster support disabled") => {
                let message = "it is no Cluster; write redis: instead of redis+cluster:";
                Some((ErrorKind::Unsupported, message.to_owned()))
            }
            _ => None,
        }
    }

    /// What the way there said, or whoever answered instead.
    fn by_the_network(&self, error: &RedisError, text: &str) -> Option<(ErrorKind, String)> {
        let why = if error.is_connection_refusal() {
            "nobody listens at that address; check host and port, and that the server runs".to_owned()
        } else if text.contains("lookup address") {
            format!("there is no such host ({text}); check its name")
        } else if error.is_timeout() {
            format!("the server did not answer in time (connect-timeout){}", self.silence())
        } else if self.tls && text.contains("InvalidContentType") {
            "it speaks no TLS; write redis instead of rediss".to_owned()
        } else if self.tls && text.contains("CertificateRequired") {
            "it asks for a certificate of ours; name it with tls-cert and tls-key".to_owned()
        } else if error.kind() == Redis::Parse {
            // 21 begins an alert of TLS, which is what its servers answer to plain text.
            let tls = !self.tls && text.contains("Unexpected `21`");
            if tls {
                "it speaks TLS; write rediss instead of redis"
            } else {
                "what answers there is no Redis server"
            }
            .to_owned()
        } else if error.is_connection_dropped() {
            let (is, write, not) =
                if self.tls { ("no TLS", "redis", "rediss") } else { ("TLS", "rediss", "redis") };
            format!("it ended the connection at once; if it speaks {is}, write {write} instead of {not}")
        } else {
            return None;
        };
        Some((ErrorKind::Unavailable, why))
    }
}
