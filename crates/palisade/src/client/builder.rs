use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Clock, Demand, Engine, Error, ErrorKind, Owner, Result, SystemClock, Ttl};

use super::keeper::Keeper;
use super::{Client, Inner};
use crate::chance::{Chance, SystemChance};
use crate::connect;
use crate::supervised::Supervised;

/// Settings of a [`Client`].
#[derive(Debug, Clone, Default)]
pub struct ClientBuilder {
    label: Option<String>,
    trace: Option<String>,
    namespace: Option<String>,
    ttl: Option<Duration>,
    call_timeout: Option<Duration>,
    demand: Demand,
    clock: Option<Arc<dyn Clock>>,
    chance: Option<Arc<dyn Chance>>,
}

impl ClientBuilder {
    /// How long one call to the engine may take, unless told otherwise.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

    /// What this program calls itself; shown to those who wait for it.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The trace under which claims are made; shown to those who wait.
    #[must_use]
    pub fn trace(mut self, trace: impl Into<String>) -> Self {
        self.trace = Some(trace.into());
        self
    }

    /// The namespace: one never sees another. An error on connecting if the URL names another one.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The TTL of claims that name none; 15 s unless set here or in the URL, whose own comes first.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long one call to the engine may take; 5 s unless set. The URL's own comes first.
    #[must_use]
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = Some(limit);
        self
    }

    /// What the engine must promise.
    #[must_use]
    pub fn demand(mut self, demand: Demand) -> Self {
        self.demand = demand;
        self
    }

    /// Another clock, for tests and simulations.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Another source of chance, for simulations.
    #[must_use]
    pub fn chance(mut self, chance: Arc<dyn Chance>) -> Self {
        self.chance = Some(chance);
        self
    }

    /// Connects to the engine at `url`; see [`crate::connect`].
    ///
    /// # Errors
    /// As [`crate::connect`]; [`ErrorKind::Unsupported`] if the engine does not promise what was
    /// demanded, naming each unmet part.
    #[allow(clippy::unused_async, reason = "engines with servers connect here")]
    pub async fn connect(self, url: &str) -> Result<Client> {
        let opened = connect::open(url, self.namespace.as_deref()).await?;
        let builder = Self {
            ttl: opened.ttl.or(self.ttl),
            call_timeout: opened.call_timeout.or(self.call_timeout),
            ..self
        };
        builder.over(opened.engine)
    }

    /// Makes a client over an engine that is open already, such as one of your own.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the engine does not promise what was demanded;
    /// [`ErrorKind::Invalid`] outside a tokio runtime.
    pub fn over(self, engine: Arc<dyn Engine>) -> Result<Client> {
        self.demand.check(engine.profile())?;
        let ttl = self.ttl.map(Ttl::new).transpose()?.unwrap_or_default();
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let chance = self.chance.unwrap_or_else(|| Arc::new(SystemChance));
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Invalid, "a client is made inside a tokio runtime").because(error)
        })?;
        let limit = self.call_timeout.unwrap_or(Self::CALL_TIMEOUT);
        let engine: Arc<dyn Engine> = Arc::new(Supervised::new(engine, Arc::clone(&clock), limit));
        let owner = Owner { label: self.label, trace: self.trace, ..Owner::this_process() };
        let keeper = Keeper::start(&runtime, Arc::clone(&engine), Arc::clone(&clock));
        Ok(Client(Arc::new(Inner { engine, clock, chance, owner: Arc::new(owner), ttl, keeper })))
    }
}
