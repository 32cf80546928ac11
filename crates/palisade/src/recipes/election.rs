use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use palisade_core::{
    Change, ClaimId, Family, Mode, Name, Owner, Page, ResourceView, Result, Selector, Token, WatchEvent,
};

use super::{guard_type, recipe_options};
use crate::client::{Ask, Client, Options, Patience};

/// Who leads: one of many candidates, with a value that everyone can read.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// # let client = palisade::connect("memory:").await?;
/// let election = client.election("scheduler")?;
/// let leadership = election.campaign("10.0.0.7:9000").await?;
/// assert_eq!(election.leader().await?.unwrap().value, "10.0.0.7:9000");
/// leadership.proclaim("10.0.0.7:9001").await?;
/// leadership.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    client: Client,
    ask: Ask,
}

/// The leader, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it published.
    pub value: Bytes,
    /// Its fencing token: rises with every change of leader.
    pub token: Token,
    /// Who it is.
    pub owner: Arc<Owner>,
    /// Its claim.
    pub claim: ClaimId,
    /// For how long it has led.
    pub age: Duration,
}

impl Client {
    /// The election called `name`.
    ///
    /// # Errors
    /// If `name` is no [`Name`].
    pub fn election(&self, name: &str) -> Result<Election> {
        Ok(Election {
            client: self.clone(),
            ask: Ask::new(Name::new(name)?, Family::Election, Mode::Exclusive),
        })
    }
}

impl Election {
    recipe_options!();

    fn options(&mut self) -> &mut Options {
        &mut self.ask.options
    }

    fn ask(&self, value: impl Into<Bytes>) -> Ask {
        Ask { value: Some(value.into()), ..self.ask.clone() }
    }

    /// Waits to be elected. Errors and cancel safety as [`crate::Mutex::acquire`].
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leadership> {
        self.client.acquire_forever(&self.ask(value)).await.map(Leadership)
    }

    /// Leads if nobody does.
    pub async fn try_campaign(&self, value: impl Into<Bytes>) -> Result<Option<Leadership>> {
        Ok(self.client.acquire(&self.ask(value), Patience::Once).await?.map(Leadership))
    }

    /// Waits to be elected, but not longer than `limit`.
    pub async fn campaign_within(
        &self,
        value: impl Into<Bytes>,
        limit: Duration,
    ) -> Result<Option<Leadership>> {
        Ok(self.client.acquire(&self.ask(value), Patience::Within(limit)).await?.map(Leadership))
    }

    /// Who leads now.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let selector = Selector::resource(self.ask.resource.clone());
        let found = self.client.engine().inspect(&selector, &Page::default()).await?;
        Ok(found.resources.first().and_then(leader_of))
    }

    /// Who leads, beginning with now: `None` while nobody does. A new value of the same leader is
    /// told too. Leaders who came and went between two looks may be left out; the latest never is.
    ///
    /// # Errors
    /// If the engine cannot be watched. The stream ends after an error.
    pub async fn observe(&self) -> Result<BoxStream<'static, Result<Option<Leader>>>> {
        let changes = self.client.engine().watch(&Selector::resource(self.ask.resource.clone())).await?;
        let now = self.leader().await?;
        let told = now.as_ref().map(identity);
        let later = changes
            .filter_map(async |event| match event {
                Ok(WatchEvent::Resource(view)) => Some(Ok(leader_of(&view))),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            })
            .scan(told, |told, leader| {
                let news = match &leader {
                    Ok(leader) => {
                        let next = leader.as_ref().map(identity);
                        std::mem::replace(told, next.clone()) != next
                    }
                    Err(_) => true,
                };
                std::future::ready(Some(news.then_some(leader)))
            })
            .filter_map(std::future::ready);
        Ok(stream::once(std::future::ready(Ok(now))).chain(later).boxed())
    }
}

fn leader_of(view: &ResourceView) -> Option<Leader> {
    let holder = view.holders.first()?;
    Some(Leader {
        value: holder.value.clone().unwrap_or_default(),
        token: holder.token?,
        owner: Arc::clone(&holder.owner),
        claim: holder.claim,
        age: holder.age,
    })
}

fn identity(leader: &Leader) -> (ClaimId, Bytes) {
    (leader.claim, leader.value.clone())
}

guard_type! {
    /// A won [`Election`], until it is resigned or lost.
    Leadership
}

impl Leadership {
    /// Publishes another value.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Lost`] if another may lead by now.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<()> {
        self.0.change(Change::Value(Some(value.into()))).await
    }

    /// Steps down; the same as [`Leadership::release`].
    ///
    /// # Errors
    /// If the engine could not be reached; stepping down goes on in the background.
    pub async fn resign(self) -> Result<crate::Released> {
        self.release().await
    }
}
