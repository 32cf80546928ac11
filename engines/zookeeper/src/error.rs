use palisade_core::{Error, ErrorKind};

/// How a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const OK: Self = Self(0);
    /// A part of a transaction after the one that failed.
    pub(crate) const NOT_TRIED: Self = Self(-2);
    pub(crate) const CONNECTION_LOSS: Self = Self(-4);
    pub(crate) const UNIMPLEMENTED: Self = Self(-6);
    pub(crate) const BAD_ARGUMENTS: Self = Self(-8);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const INVALID_ACL: Self = Self(-114);
    pub(crate) const AUTH_FAILED: Self = Self(-115);
    pub(crate) const SESSION_MOVED: Self = Self(-118);
    pub(crate) const NOT_READ_ONLY: Self = Self(-119);
    pub(crate) const SASL_REQUIRED: Self = Self(-124);
    pub(crate) const QUOTA_EXCEEDED: Self = Self(-125);
    pub(crate) const THROTTLED: Self = Self(-127);

    /// Whether it says that something is not as was expected, which is no failure.
    pub(crate) fn is_condition(self) -> bool {
        matches!(self, Self::NO_NODE | Self::BAD_VERSION | Self::NODE_EXISTS)
    }

    /// Whether the connection, or the session, is of no use any more.
    pub(crate) fn ends_the_connection(self) -> bool {
        matches!(
            self,
            Self::SESSION_EXPIRED
                | Self::SESSION_MOVED
                | Self::CONNECTION_LOSS
                | Self::AUTH_FAILED
                | Self::SASL_REQUIRED
        )
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {}", self.0)
    }
}

impl std::error::Error for Code {}

/// A server's no as ours: it had no effect.
pub(crate) fn refused(code: Code) -> Error {
    let (kind, message) = match code {
        Code::NO_NODE => (ErrorKind::Unavailable, "a node vanished meanwhile; try again".to_owned()),
        Code::NO_AUTH => (
            ErrorKind::Denied,
            "the server refuses this user; see docs/engines/zookeeper.md for the rights that are needed"
                .to_owned(),
        ),
        Code::AUTH_FAILED => (ErrorKind::Denied, "the server refuses this user or password".to_owned()),
        Code::SASL_REQUIRED => (
            ErrorKind::Denied,
            "the server asks for a login by SASL; write user:password@ and option auth=sasl".to_owned(),
        ),
        Code::INVALID_ACL => (
            ErrorKind::Denied,
            "the server does not know who we are, so that nodes cannot be ours alone; option acl=creator needs a login"
                .to_owned(),
        ),
        Code::UNIMPLEMENTED => {
            (ErrorKind::Unsupported, "the server cannot do that; it needs ZooKeeper 3.6 or later".to_owned())
        }
        Code::BAD_ARGUMENTS => (ErrorKind::Invalid, "the server takes this for a mistake".to_owned()),
        Code::QUOTA_EXCEEDED => (ErrorKind::Full, "a quota of the server is used up".to_owned()),
        Code::SESSION_EXPIRED => (ErrorKind::Unavailable, "the session is over".to_owned()),
        Code::SESSION_MOVED => {
            (ErrorKind::Unavailable, "the session has moved to another server".to_owned())
        }
        Code::CONNECTION_LOSS => (ErrorKind::Unavailable, "the server lost its leader".to_owned()),
        Code::NOT_READ_ONLY => (ErrorKind::Unavailable, "the server answers reads only".to_owned()),
        Code::THROTTLED => (ErrorKind::Unavailable, "the server has too much to do".to_owned()),
        Code(other) => (ErrorKind::Unavailable, format!("the server answers with code {other}")),
    };
    let error = Error::new(kind, message).because(code);
    // What a server that is on its way out says may come after the deed.
    if code == Code::CONNECTION_LOSS || code == Code::THROTTLED { error.with_unknown_effect() } else { error }
}

/// Which code an error was made of.
pub(crate) fn code_of(error: &Error) -> Option<Code> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref::<Code>()).copied()
}

/// No answer came, nor will one.
pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection was lost").with_unknown_effect()
}

/// A session that is no more, and all that was on it.
pub(crate) fn over() -> Error {
    Error::new(ErrorKind::Unavailable, "the session is over").because(Code::SESSION_EXPIRED)
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
