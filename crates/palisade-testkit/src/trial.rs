//! What tests on real servers have in common: waits that end, and holders that must outlive what befalls the servers.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::{BootInstant, Client, ClientBuilder, MutexGuard};

use crate::bounded;

/// Far above what anything takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that must happen.
///
/// # Errors
/// It did not, in time.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, happens).await.with_context(|| format!("{what}: not in time"))
}

/// Waits until a condition holds.
///
/// # Errors
/// It did not, in time.
pub async fn until<F: Future<Output = Result<bool>>>(what: &str, mut holds: impl FnMut() -> F) -> Result<()> {
    bounded::eventually(PATIENCE, what, || {
        let holding = holds();
        async { Ok(holding.await?.then_some(())) }
    })
    .await
}

/// A client with claims of so many seconds.
///
/// # Errors
/// It cannot connect.
pub async fn client(url: &str, seconds: u64) -> Result<Client> {
    Ok(ClientBuilder::default().ttl(Duration::from_secs(seconds)).connect(url).await?)
}

/// Six clients with a lock each, whichever servers they talk to.
///
/// # Errors
/// One cannot connect, or is not let in.
pub async fn holders(url: &str, seconds: u64) -> Result<(Vec<Client>, Vec<MutexGuard>)> {
    let (mut clients, mut guards) = (Vec::new(), Vec::new());
    for at in 0..6 {
        let client = client(url, seconds).await?;
        guards.push(client.mutex(&format!("lock-{at}"))?.acquire().await?);
        clients.push(client);
    }
    Ok((clients, guards))
}

/// Waits until each was renewed at a time when what was not renewed since `struck` has ended.
///
/// # Errors
/// One was lost, or not renewed in time.
pub async fn outlive(guards: &[MutexGuard], struck: BootInstant) -> Result<()> {
    until("all are renewed", || async {
        for guard in guards {
            ensure!(guard.is_valid(), "{guard:?} was lost");
        }
        // A deadline is at most a TTL after the last renewal.
        let renewed = |guard: &MutexGuard| guard.deadline().is_some_and(|end| end > struck + guard.ttl() * 2);
        Ok(guards.iter().all(renewed))
    })
    .await
}
