//! One client per engine connection: it asks, renews and releases for all its guards.

mod acquire;
mod book;
mod builder;
mod hold;
mod keeper;
mod pending;

use std::fmt;
use std::sync::Arc;

use futures::Stream;
use futures::stream;
use palisade_core::{
    ClaimId, Clock, ConnectionState, Engine, Evicted, Matching, Name, Owner, Page, Profile, ResourceView,
    Result, Scope, Selector, Ttl, WatchStream,
};
use tokio::sync::watch;

pub(crate) use self::acquire::{Ask, Options, Patience};
pub use self::builder::ClientBuilder;
pub(crate) use self::hold::Hold;
use self::keeper::Keeper;
pub(crate) use self::pending::Pending;
use crate::chance::Chance;

/// A connection to one engine, from which all recipes and registers are made.
///
/// Cheap to clone; all clones share the connection, one renewal task, and one release queue. The
/// connection ends when the last clone and the last guard are gone, or with [`Client::close`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// use std::time::Duration;
/// let client = palisade::Client::builder()
///     .label("billing")
///     .ttl(Duration::from_secs(5))
///     .connect("memory:")
///     .await?;
/// let guard = client.mutex("card/1234")?.acquire().await?;
/// assert!(guard.is_valid());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    owner: Arc<Owner>,
    ttl: Ttl,
    keeper: Keeper,
}

impl Client {
    /// A client with settings of its own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// What the engine promises.
    pub fn profile(&self) -> &Profile {
        self.0.engine.profile()
    }

    /// Who this client is to others.
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// How the connection stands, and how that changes. Begins with the present state.
    ///
    /// While it is *suspended* guards keep their deadlines; once it is *lost* they are invalid.
    pub fn connection(&self) -> impl Stream<Item = ConnectionState> + Send + 'static {
        let states: watch::Receiver<ConnectionState> = self.0.keeper.connection();
        stream::unfold((states, false), |(mut states, told)| async move {
            if told {
                states.changed().await.ok()?;
            }
            let state = *states.borrow_and_update();
            Some((state, (states, true)))
        })
    }

    /// One resource with its holders and waiters.
    ///
    /// # Errors
    /// If `name` is no [`Name`], or the engine cannot be reached.
    ///
    /// # Cancel safety
    /// Safe: it only looks, as do [`Client::list`] and [`Client::watch`].
    pub async fn show(&self, name: &str) -> Result<ResourceView> {
        let name = Name::new(name)?;
        let found = self.0.engine.inspect(&Selector::resource(name.clone()), &Page::default()).await?;
        Ok(found.resources.into_iter().next().unwrap_or_else(|| ResourceView::free(name)))
    }

    /// All resources that are claimed and whose names begin with `prefix`, by name.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ResourceView>> {
        let selector = Selector::resources(prefix);
        let (mut page, mut all) = (Page::default(), Vec::new());
        loop {
            let found = self.0.engine.inspect(&selector, &page).await?;
            all.extend(found.resources.into_iter().filter(|view| !view.resource.is_internal()));
            match found.next {
                Some(next) => page.after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Changes of all resources and registers whose names begin with `prefix`, beginning with the
    /// present state.
    pub async fn watch(&self, prefix: &str) -> Result<WatchStream> {
        self.0
            .engine
            .watch(&Selector { scope: Scope::Both, matching: Matching::Prefix(prefix.to_owned()) })
            .await
    }

    /// Ends one claim by force. Its holder is told why; the next in line gets a greater token, so
    /// that fenced writes stay right.
    ///
    /// # Errors
    /// If `name` is no [`Name`], or the engine cannot be reached or cannot end a single claim.
    ///
    /// # Cancel safety
    /// Not safe: the claim may have been ended. Evicting it again is right.
    pub async fn evict(&self, name: &str, claim: ClaimId, reason: &str) -> Result<Evicted> {
        self.0.engine.evict(&Name::new(name)?, claim, reason).await
    }

    /// Releases what was dropped, then ends the connection. Guards that still live are lost.
    ///
    /// # Cancel safety
    /// Guards are lost at the first poll; the rest goes on when it is called again, or ends with
    /// the last handle.
    pub async fn close(&self) {
        self.0.keeper.close().await;
        self.0.engine.close().await;
    }

    /// The engine itself, for what no recipe offers.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.0.engine
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(crate) fn chance(&self) -> &dyn Chance {
        &*self.0.chance
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.0.keeper
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("engine", &self.profile().engine)
            .field("owner", &self.0.owner)
            .finish()
    }
}
