use std::net::SocketAddr;
use std::time::Duration;

use super::link::Limits;

/// How to reach a server.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// Where the server, or a proxy before it, listens.
    pub address: SocketAddr,
    /// The namespace.
    pub namespace: String,
    /// How long a call may look for a connection, and how long an answer may take before the
    /// connection counts as dead.
    pub call_timeout: Duration,
}

impl RemoteConfig {
    /// Less than a client's own limit, so that the engine can say what is wrong.
    const CALL_TIMEOUT: Duration = Duration::from_secs(2);

    /// The server at `address`, with the default limit of 2 s.
    pub fn new(address: SocketAddr, namespace: impl Into<String>) -> Self {
        Self { address, namespace: namespace.into(), call_timeout: Self::CALL_TIMEOUT }
    }

    /// Another limit per call.
    #[must_use]
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    pub(super) fn limits(&self) -> Limits {
        // Half of it, so that a try into the void leaves time for another.
        Limits { opening: self.call_timeout / 2, answer: self.call_timeout }
    }
}
