use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select;
use palisade_core::{Claim, Clock, Result, SystemClock, Waited};

use crate::look::{self, Turn};
use crate::notice::Tie;
use crate::session::SessionId;
use crate::shared::{Shared, Urgency};

/// How often one looks whom the kernel does not tell.
const BLIND: Duration = Duration::from_millis(250);

/// Waits until a queued claim is granted or gone.
pub(crate) async fn wait(shared: &Arc<Shared>, claim: &Arc<Claim>) -> Result<Waited> {
    let waiter = shared.waiters.enlist(claim.id);
    let mut ties = Ties::default();
    loop {
        // Enlisted before the look, so that no wake-up falls in between.
        let mut told = pin!(waiter.turn.notified());
        told.as_mut().enable();
        shared.check_open()?;
        let now = SystemClock.now();
        match shared.read(|db| look::turn(db, &shared.notes, &shared.namespace, claim, now.as_nanos()))? {
            Turn::Granted(grant) => return Ok(Waited::Granted(grant)),
            Turn::Gone(reason) => return Ok(Waited::Gone(reason)),
            Turn::Settle => settle(shared, claim).await?,
            Turn::Sleep { sessions, until } => {
                ties = Ties::of(shared, &sessions, ties);
                if reap_dead(shared, sessions).await? {
                    continue;
                }
                let until = if ties.blind { until.min(now + BLIND) } else { until };
                select(told, pin!(SystemClock.sleep_until(until))).await;
            }
        }
    }
}

async fn settle(shared: &Arc<Shared>, claim: &Arc<Claim>) -> Result<()> {
    let (namespace, claim) = (shared.namespace.clone(), Arc::clone(claim));
    shared.decide(Urgency::Normal, move |ledger| ledger.purge(&namespace, claim.resource.as_str())).await
}

/// Passes on the claims of those who died before they were watched.
async fn reap_dead(shared: &Arc<Shared>, sessions: Vec<SessionId>) -> Result<bool> {
    let dead: Vec<_> = sessions
        .into_iter()
        .filter(|session| *session != shared.session && shared.sessions.is_dead(*session))
        .collect();
    if dead.is_empty() {
        return Ok(false);
    }
    shared.decide(Urgency::Heavy, move |ledger| ledger.reap(&dead)).await?;
    Ok(true)
}

/// Whom a waiter watches.
#[derive(Debug, Default)]
struct Ties {
    kept: Vec<Tie>,
    /// The kernel will not tell about all of them.
    blind: bool,
}

impl Ties {
    /// Ties to `sessions`; the old ones go only afterwards, so that who stays is watched all along.
    fn of(shared: &Arc<Shared>, sessions: &[SessionId], old: Self) -> Self {
        let mut ties = Self::default();
        for session in sessions.iter().filter(|session| **session != shared.session) {
            match shared.notices.tie(shared, *session) {
                Some(tie) => ties.kept.push(tie),
                None => ties.blind = true,
            }
        }
        drop(old);
        ties
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Claimed, Engine, Mode, Name, Owner, Ttl};

    use super::*;
    use crate::{EmbeddedConfig, EmbeddedEngine};

    #[tokio::test]
    async fn one_who_was_let_in_by_a_process_that_died_before_telling_it_is_not_left_asleep() {
        let folder = tempfile::tempdir().unwrap();
        let open = || EmbeddedEngine::open(EmbeddedConfig::new(folder.path()));
        let (holder, waiter) = (open().await.unwrap(), open().await.unwrap());
        let owner = Arc::new(Owner::this_process());
        let claim = || {
            let name = Name::new("r").unwrap();
            Arc::new(Claim::new(name, Mode::Exclusive, Ttl::default(), Arc::clone(&owner)))
        };
        let (held, queued) = (claim(), claim());
        assert!(matches!(holder.claim(&held).await.unwrap(), Claimed::Granted(_)));
        assert!(matches!(waiter.claim(&queued).await.unwrap(), Claimed::Queued(_)));
        let mut waiting = pin!(waiter.wait(&queued));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        // The release is committed, and nobody is told.
        let shared = &holder.shared;
        shared.store.lock().transact(&shared.scene(), |ledger| ledger.withdraw_all(&[held])).unwrap();
        drop(holder);
        let outcome = tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap();
        assert!(matches!(outcome.unwrap(), Waited::Granted(_)));
    }

    #[tokio::test]
    async fn a_death_is_noticed_also_where_the_kernel_does_not_tell() {
        let folder = tempfile::tempdir().unwrap();
        let open = || EmbeddedEngine::open(EmbeddedConfig::new(folder.path()));
        let (holder, waiter) = (open().await.unwrap(), open().await.unwrap());
        let name = Name::new("r").unwrap();
        let owner = Arc::new(Owner::this_process());
        let claim = || {
            let claim = Claim::new(name.clone(), Mode::Exclusive, Ttl::default(), Arc::clone(&owner));
            Arc::new(claim)
        };
        assert!(matches!(holder.claim(&claim()).await.unwrap(), Claimed::Granted(_)));
        let queued = claim();
        assert!(matches!(waiter.claim(&queued).await.unwrap(), Claimed::Queued(_)));
        // As if the user had no inotify instance left.
        waiter.shared.notices.stop();
        let dies = async { drop(holder) };
        let both = futures::future::join(waiter.wait(&queued), dies);
        let (outcome, ()) = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
        assert!(matches!(outcome.unwrap(), Waited::Granted(_)));
    }
}
