use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Clock, Error, ErrorKind, GoneReason, Result, SystemClock, Ttl};
use parking_lot::Mutex;

use crate::engine::Inner;
use crate::session::Session;

/// The sessions of one client: one per TTL, however many claims.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<Duration, Place>>);

/// The session of one TTL, and whoever makes it.
type Place = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

/// The timeout of a session for claims of this TTL: the same, rounded up so that sessions are few.
pub(crate) fn timeout(ttl: Ttl) -> Duration {
    const SECOND: u128 = 1000;
    let ttl = ttl.as_duration().as_nanos().div_ceil(1_000_000);
    let step = if ttl < SECOND { 50 } else { SECOND };
    Duration::from_millis((ttl.div_ceil(step) * step) as u64)
}

impl Inner {
    /// A session for claims of this TTL.
    pub(crate) async fn session(self: &Arc<Self>, ttl: Ttl) -> Result<Arc<Session>> {
        let timeout = timeout(ttl);
        let place = Arc::clone(self.sessions.0.lock().entry(timeout).or_default());
        // One at a time: all others want the same.
        let mut place = place.lock().await;
        if let Some(session) = place.as_ref().filter(|session| !session.is_over()) {
            return Ok(Arc::clone(session));
        }
        let main = self.main();
        let session = if timeout == main.timeout() && !main.is_over() {
            main
        } else {
            let opening = Session::open(&self.servers, timeout);
            let limit = self.servers.config.call_timeout;
            tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Timeout, "no server began a session in time"))
            })?
        };
        if self.is_closed() {
            session.abandon();
            return Err(crate::error::closed());
        }
        long_enough(&session, timeout)?;
        *place = Some(Arc::clone(&session));
        tokio::spawn(Arc::clone(self).attend_end(Arc::clone(&session)));
        Ok(session)
    }

    /// Tells of the end of all that was on a session, when it ends.
    async fn attend_end(self: Arc<Self>, session: Arc<Session>) {
        session.until_over().await;
        if self.is_closed() {
            return;
        }
        for known in self.claims.of_session(&session) {
            // It ran out, or somebody ended it.
            let late = known.until <= SystemClock.now();
            let reason = if late { GoneReason::Expired } else { GoneReason::SessionLost };
            self.is_gone(known.claim.id, reason);
        }
    }

    /// All sessions for claims, apart from the main one.
    fn all_sessions(&self) -> Vec<Arc<Session>> {
        let places: Vec<_> = self.sessions.0.lock().values().cloned().collect();
        places.iter().filter_map(|place| place.try_lock().ok().and_then(|place| place.clone())).collect()
    }

    /// Ends all sessions. Those that carry claims are left to run out: their claims end as those of a
    /// dead process, neither sooner nor later.
    pub(crate) async fn close_sessions(&self) {
        let main = self.main();
        let all = self.all_sessions().into_iter().chain([main]);
        let close = |session: Arc<Session>| async move {
            let idle = self.claims.of_session(&session).is_empty();
            session.close(idle).await;
        };
        futures::future::join_all(all.map(close)).await;
    }

    pub(crate) fn abandon_sessions(&self) {
        self.all_sessions().into_iter().chain([self.main()]).for_each(|session| session.abandon());
    }
}

/// A server that ends sessions sooner than asked for cannot honour the TTL.
fn long_enough(session: &Session, asked: Duration) -> Result<()> {
    let granted = session.timeout();
    if granted >= asked {
        return Ok(());
    }
    session.abandon();
    let message = format!(
        "a TTL of {asked:?} was asked for, and these servers end sessions after {granted:?}: take a TTL of at most that \
         (option --ttl, or ttl of the client), or set maxSessionTimeout={} or more on all servers",
        asked.as_millis()
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_as_long_as_its_claims() {
        for (ttl, expected) in
            [(50, 50), (51, 100), (999, 1000), (1000, 1000), (1500, 2000), (15_000, 15_000)]
        {
            let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
            assert_eq!(timeout(ttl), Duration::from_millis(expected));
        }
    }
}
