//! Waits that end.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Awaits `future`, at most for `limit`.
pub(crate) async fn bounded<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(limit, future).await.with_context(|| format!("{what} took longer than {limit:?}"))
}

/// Looks again and again until `look` finds something, at most for `limit`.
pub(crate) async fn eventually<T, F>(limit: Duration, what: &str, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    const PAUSE: Duration = Duration::from_millis(5);
    bounded(limit, what, async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await?
}
