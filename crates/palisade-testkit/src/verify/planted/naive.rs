use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palisade::Client;
use palisade_core::{
    BootInstant, Busy, Claim, Claimed, Clock, Condition, Engine, Grant, Layer, Name, Raise, Reading, Renewed,
    Result, SystemClock, Token, Waited, Withdrawn, Written,
};

/// The lock that everyone writes first: a key with a TTL, set if absent, deleted to release.
///
/// It hands out no token (the clock stands in for one, because a guard must have one), renews
/// nothing, checks no owner, and its holder never asks whether it still holds.
#[derive(Debug)]
pub(super) struct Naive {
    inner: Arc<dyn Engine>,
    _client: Client,
}

impl Naive {
    pub(super) fn new(inner: Arc<dyn Engine>, client: Client) -> Self {
        Self { inner, _client: client }
    }

    fn key(claim: &Claim) -> Name {
        Name::new(format!("naive {}", claim.resource)).unwrap_or_else(|_| claim.resource.clone())
    }

    async fn take(&self, claim: &Claim) -> Result<Option<Grant>> {
        let owner = Bytes::from(claim.id.to_string());
        let absent = Condition::always().absent();
        let ttl = Some(claim.ttl.as_duration());
        Ok(match self.inner.write(&Self::key(claim), owner, &absent, ttl).await? {
            Written::Done(_) => Some(Grant {
                token: Token::new(SystemClock.now().as_nanos()).unwrap_or(Token::new(1).expect("in range")),
                slot: None,
                valid_until: BootInstant::FAR_FUTURE,
            }),
            Written::Refused(_) => None,
        })
    }
}

#[async_trait]
impl Layer for Naive {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        let look_again = Some(Duration::from_millis(20));
        Ok(match self.take(claim).await? {
            Some(grant) => Claimed::Granted(grant),
            None => Claimed::Busy(Busy { holders: Vec::new(), look_again_in: look_again }),
        })
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        loop {
            if let Some(grant) = self.take(claim).await? {
                return Ok(Waited::Granted(grant));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        Ok(claims.iter().map(|_| Renewed::Valid { until: BootInstant::FAR_FUTURE }).collect())
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        for claim in claims {
            self.inner.delete(&Self::key(claim), &Condition::always()).await?;
        }
        Ok(claims.iter().map(|_| Withdrawn::Released).collect())
    }

    async fn read(&self, register: &Name, _: Option<&Raise>) -> Result<Reading> {
        self.inner.read(register, None).await
    }

    async fn write(
        &self,
        register: &Name,
        value: Bytes,
        _: &Condition,
        expires_in: Option<Duration>,
    ) -> Result<Written> {
        self.inner.write(register, value, &Condition::always(), expires_in).await
    }
}
