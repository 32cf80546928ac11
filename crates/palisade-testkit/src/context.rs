use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade::Client;
use palisade_core::{BootInstant, Claim, Clock, Liveness, Mode, Name, Owner, Profile, SystemClock, Ttl};

pub(crate) use crate::bounded::{bounded, eventually};
use crate::lock::Lock;
use crate::{Fixture, Session, Way};

/// What a case runs in: the fixture, and a namespace that nothing else uses.
#[derive(Clone)]
pub struct Context {
    pub(crate) fixture: Arc<dyn Fixture>,
    pub(crate) profile: Profile,
    pub(crate) namespace: String,
    pub(crate) way: Way,
    pub(crate) taker: Option<PathBuf>,
    pub(crate) owner: Arc<Owner>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Context {
    /// Long enough never to matter.
    const LONG: Duration = Duration::from_mins(2);

    /// Opens a new connection in the case's namespace.
    pub async fn connect(&self) -> Result<Session> {
        self.connect_to(&self.namespace).await
    }

    /// Opens a new connection in another namespace.
    pub(crate) async fn connect_to(&self, namespace: &str) -> Result<Session> {
        let engine = bounded(self.patience(), "connect", self.fixture.connect(namespace)).await??;
        Ok(Session::new(engine, self.patience()))
    }

    /// Opens two connections, for cases in which two clients meet.
    pub(crate) async fn connect_two(&self) -> Result<(Session, Session)> {
        Ok((self.connect().await?, self.connect().await?))
    }

    /// A claim in `mode` that expires only if the case takes for ever.
    pub(crate) fn claim(&self, resource: &Name, mode: Mode) -> Claim {
        self.claim_for(resource, mode, Self::LONG)
    }

    /// An exclusive claim, made in the way this run of the case asks for.
    pub(crate) fn alone(&self, resource: &Name) -> Claim {
        self.claim(resource, self.way.mode()).family(self.way.family())
    }

    /// An exclusive claim that expires soon.
    pub(crate) fn alone_briefly(&self, resource: &Name) -> Claim {
        self.claim_for(resource, self.way.mode(), self.short()).family(self.way.family())
    }

    pub(crate) fn claim_for(&self, resource: &Name, mode: Mode, ttl: Duration) -> Claim {
        let ttl = Ttl::new(ttl).expect("the suite's TTLs lie in range");
        Claim::new(resource.clone(), mode, ttl, Arc::clone(&self.owner))
    }

    pub(crate) fn short(&self) -> Duration {
        self.fixture.short_ttl()
    }

    pub(crate) fn patience(&self) -> Duration {
        self.fixture.patience()
    }

    /// The longest wait for something that must happen by an expiry.
    pub(crate) fn until_expired(&self) -> Duration {
        self.short() + self.fixture.slack()
    }

    /// `full` of something, scaled by the fixture's effort, at least `least`.
    pub(crate) fn effort(&self, full: u32, least: u32) -> u32 {
        (full * self.fixture.effort() / 100).max(least)
    }

    /// A client over a connection of its own, whose guards are renewed in peace.
    pub(crate) async fn client(&self) -> Result<Client> {
        self.client_with(Duration::from_secs(30)).await
    }

    /// A client whose guards have another TTL.
    pub(crate) async fn client_with(&self, ttl: Duration) -> Result<Client> {
        Ok(Client::builder().label("palisade-testkit").ttl(ttl).over(self.connect().await?.engine())?)
    }

    /// Who gives back what `asker` asked for: `other`, because claims go by their ids, unless only the connection that
    /// asked can.
    pub(crate) fn giver<'a>(&self, asker: &'a Session, other: &'a Session) -> &'a Session {
        if self.profile.liveness == Liveness::Connection { asker } else { other }
    }

    /// The lock called `text`, in the way this run of the case asks for.
    pub(crate) fn lock(&self, client: &Client, text: &str) -> Result<Lock> {
        Ok(Lock::new(client, self.way, text)?)
    }

    /// Where a separate process finds this namespace.
    pub(crate) fn url(&self) -> Result<String> {
        self.fixture.url(&self.namespace).context("the fixture has no URL")
    }
}

/// The name `text`, which the suite knows to be one.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("the suite's names are valid")
}

/// Now, on the clock that guards use.
pub(crate) fn now() -> BootInstant {
    SystemClock.now()
}
