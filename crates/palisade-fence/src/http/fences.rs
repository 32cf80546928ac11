use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use palisade_core::{Fence as Marks, FencingToken, Name};
use parking_lot::Mutex;

use crate::{DbError, DbErrorKind, FenceError};

/// Where a [`FenceLayer`](super::FenceLayer) keeps what it has seen.
///
/// Pools of sqlx and of `mysql_async` are such places: the table of [`Fence`](crate::Fence) is used, so that all instances of a
/// service share it, and it outlives them.
pub trait Fences: Clone + Send + Sync + 'static {
    /// Lets `token` pass, or says why not; and keeps older ones out from now on. `strict`: once per token.
    fn admit(
        &self,
        resource: &Name,
        token: &FencingToken,
        strict: bool,
    ) -> impl Future<Output = Result<(), FenceError>> + Send;
}

/// Fences in the memory of this process: right for one instance of a service, until it ends.
///
/// A new process has seen nothing: until a newer holder's first request reaches it, an old one's passes.
#[derive(Debug, Clone)]
pub struct MemoryFences {
    seen: Arc<Mutex<HashMap<Name, Marks>>>,
    most: usize,
}

impl Default for MemoryFences {
    fn default() -> Self {
        Self { seen: Arc::default(), most: 1_000_000 }
    }
}

impl MemoryFences {
    /// For so many resources at most, instead of a million. What was seen of one cannot be forgotten; requests for further ones
    /// are refused.
    #[must_use]
    pub fn at_most(mut self, resources: usize) -> Self {
        self.most = resources;
        self
    }
}

impl Fences for MemoryFences {
    async fn admit(&self, resource: &Name, token: &FencingToken, strict: bool) -> Result<(), FenceError> {
        let mut seen = self.seen.lock();
        if !seen.contains_key(resource) && seen.len() >= self.most {
            return Err(DbError::new(DbErrorKind::Other, "there is no room for another resource").into());
        }
        let marks = seen.entry(resource.clone()).or_default();
        marks.check(token, strict).map_err(|refusal| FenceError::refused(token, refusal))?;
        marks.record_write(token);
        Ok(())
    }
}

/// For pools by their type: only of a concrete one is it known that its futures can be sent.
#[cfg(any(
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "sqlx-sqlite",
    feature = "mysql-async"
))]
macro_rules! fences_in {
    ($pool:ty) => {
        impl Fences for $pool {
            async fn admit(
                &self,
                resource: &Name,
                token: &FencingToken,
                strict: bool,
            ) -> Result<(), FenceError> {
                let mut attempts = crate::Attempts::new(crate::Backoff::default());
                loop {
                    match once(&mut self.clone(), resource, token, strict).await {
                        Err(error) if attempts.again(&error).await => {}
                        done => return done,
                    }
                }
            }
        }
    };
}

#[cfg(feature = "mysql-async")]
fences_in!(mysql_async::Pool);
#[cfg(feature = "sqlx-mysql")]
fences_in!(sqlx::MySqlPool);
#[cfg(feature = "sqlx-postgres")]
fences_in!(sqlx::PgPool);
#[cfg(feature = "sqlx-sqlite")]
fences_in!(sqlx::SqlitePool);

#[cfg(any(
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "sqlx-sqlite",
    feature = "mysql-async"
))]
async fn once<D: crate::Database>(
    database: &mut D,
    resource: &Name,
    token: &FencingToken,
    strict: bool,
) -> Result<(), FenceError> {
    use crate::Transaction;
    let fence = crate::Fence::of(resource);
    let fence = if strict { fence.strict() } else { fence };
    let mut tx = database.begin().await?;
    fence.admit(&mut tx, token).await?;
    Ok(tx.commit().await?)
}
