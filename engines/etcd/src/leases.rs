use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Clock, Result, SystemClock, Ttl};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Status;

use crate::engine::Inner;
use crate::error::{is_lease_gone, unexpected};
use crate::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseResponse, PutRequest, PutResponse, path,
};

/// The leases of one client: one per TTL in whole seconds, however many claims.
#[derive(Debug)]
pub(crate) struct Leases {
    by_seconds: Mutex<HashMap<u64, Place>>,
    /// Those whose end the server does not tell us of yet, each once, and whoever sees to that.
    unannounced: (UnboundedSender<Arc<Lease>>, tokio::sync::Mutex<UnboundedReceiver<Arc<Lease>>>),
}

impl Default for Leases {
    fn default() -> Self {
        let (tell, told) = unbounded_channel();
        Self { by_seconds: Mutex::default(), unannounced: (tell, tokio::sync::Mutex::new(told)) }
    }
}

/// The lease of one TTL, and whoever makes or refreshes it.
type Place = Arc<tokio::sync::Mutex<Option<Arc<Lease>>>>;

/// A lease, as far as this client knows.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// The TTL in force, as the server said.
    pub(crate) ttl: Duration,
    /// The moment before the last refresh that reached the server was sent, in nanoseconds.
    refreshed: AtomicU64,
    ended: AtomicBool,
    /// Whether somebody sees to it that the server tells us of its end.
    announcing: AtomicBool,
    /// Whether the server would tell us of its end.
    pub(crate) announced: AtomicBool,
}

impl Lease {
    fn new(id: i64, ttl: Duration, sent: BootInstant) -> Self {
        Self {
            id,
            ttl,
            refreshed: AtomicU64::new(sent.as_nanos()),
            ended: AtomicBool::new(false),
            announcing: AtomicBool::new(false),
            announced: AtomicBool::new(false),
        }
    }

    #[cfg(test)]
    pub(crate) fn of(id: i64) -> Self {
        Self::new(id, Duration::from_secs(15), SystemClock.now())
    }

    /// Until when the server honours it at least, on our clock.
    pub(crate) fn until(&self) -> BootInstant {
        BootInstant::from_nanos(self.refreshed.load(Ordering::Acquire)) + self.ttl
    }

    /// Notes a refresh that reached the server.
    pub(crate) fn refreshed_at(&self, sent: BootInstant) {
        self.refreshed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether it has ended, or may have: the server does not answer about one that has run out until that is
    /// agreed upon, and meanwhile about no other on the same stream.
    pub(crate) fn has_run_out(&self) -> bool {
        self.is_over() || self.until() <= SystemClock.now()
    }

    fn is_fresh(&self, now: BootInstant) -> bool {
        !self.is_over() && self.until().saturating_since(now) > self.ttl * 3 / 4
    }
}

/// How many seconds a lease has for claims of this TTL.
fn seconds(ttl: Ttl) -> u64 {
    ttl.as_duration().as_nanos().div_ceil(1_000_000_000) as u64
}

impl Inner {
    /// A lease for claims of this TTL, of which at least three quarters are left.
    pub(crate) async fn lease(&self, ttl: Ttl) -> Result<Arc<Lease>> {
        let place = Arc::clone(self.leases.by_seconds.lock().entry(seconds(ttl)).or_default());
        // One at a time: all others want the same.
        let mut place = place.lock().await;
        if let Some(lease) = &*place {
            if lease.is_fresh(SystemClock.now()) || self.beat(lease).await? {
                return Ok(Arc::clone(lease));
            }
            self.lease_is_over(lease);
        }
        let lease = Arc::new(self.grant(seconds(ttl)).await?);
        *place = Some(Arc::clone(&lease));
        Ok(lease)
    }

    /// Asks for a new lease.
    pub(crate) async fn grant(&self, seconds: u64) -> Result<Lease> {
        let request = LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX) };
        let answer = self.link.call::<_, LeaseGrantResponse>(path::LEASE_GRANT, request).await?;
        let granted = u64::try_from(answer.value.ttl).map_err(|_| unexpected())?;
        Ok(Lease::new(answer.value.id, Duration::from_secs(granted), answer.sent))
    }

    /// Has a lease announced, once, without waiting for it: until then deadlines tell what the server does not.
    pub(crate) fn announce_soon(&self, lease: &Arc<Lease>) {
        if !lease.announcing.swap(true, Ordering::AcqRel) {
            // The other end lives as long as this one.
            let _ = self.leases.unannounced.0.send(Arc::clone(lease));
        }
    }

    /// Announces leases that are used for longer than a moment, until the engine is closed.
    pub(crate) async fn announce(&self) {
        // A command that takes a lock for a moment has ended by then.
        const MOMENT: Duration = Duration::from_millis(25);
        let mut unannounced = self.leases.unannounced.1.lock().await;
        loop {
            let lease = tokio::select! {
                Some(lease) = unannounced.recv() => lease,
                () = self.link.until_closed() => return,
            };
            tokio::time::sleep(MOMENT).await;
            self.announce_now(&lease).await;
        }
    }

    /// Leaves a key on the lease, in whose end we hear of the lease's. What fails for now is tried again.
    async fn announce_now(&self, lease: &Arc<Lease>) {
        const PAUSE: Duration = Duration::from_millis(100);
        let key = self.layout.session(&self.client, lease.id);
        let put = PutRequest { key, lease: lease.id, ..PutRequest::default() };
        match self.link.call::<_, PutResponse>(path::PUT, put).await {
            Ok(_) => lease.announced.store(true, Ordering::Release),
            // Whoever ended it did so before it could be told.
            Err(error) if is_lease_gone(&error) => self.lease_is_over(lease),
            Err(error) => {
                tracing::debug!(%error, "the end of a lease would not be told");
                tokio::time::sleep(PAUSE).await;
                lease.announcing.store(false, Ordering::Release);
                // Whoever is refused for good is tried again by the next claim, for somebody may have seen to it.
                if error.is_transient() && !lease.has_run_out() {
                    self.announce_soon(lease);
                }
            }
        }
    }

    /// Refreshes a lease. `false` if it is no more.
    pub(crate) async fn beat(&self, lease: &Lease) -> Result<bool> {
        if lease.has_run_out() {
            return Ok(false);
        }
        let (ttl, sent) = self.beat_id(lease.id, lease.ttl).await?;
        if ttl <= 0 {
            return Ok(false);
        }
        lease.refreshed_at(sent);
        Ok(true)
    }

    /// Refreshes any lease: how many seconds it has again, and when that was asked for.
    pub(crate) async fn beat_id(&self, id: i64, ttl: Duration) -> Result<(i64, BootInstant)> {
        const SHORTEST: Duration = Duration::from_millis(250);
        const LONGEST: Duration = Duration::from_secs(2);
        let in_use = self.link.line().await?;
        let sent = SystemClock.now();
        let beat = async {
            let answer: Option<LeaseResponse> = in_use.line.beats.beat(id).await;
            answer.ok_or_else(|| Status::cancelled("the keep-alive stream ended"))
        };
        // There must be time for another server before the lease ends.
        let limit = (ttl / 4).clamp(SHORTEST, LONGEST);
        let answer = self.link.answered(&in_use, limit, beat).await;
        let answer = answer.map_err(|status| self.link.judge(in_use.number, status))?;
        Ok((answer.ttl, sent))
    }

    /// Notes that a lease is no more, and with it all that was on it.
    pub(crate) fn lease_is_over(&self, lease: &Lease) {
        if lease.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        self.claims_of_lease_are_gone(lease);
        self.claims.lease_is_over(lease.id);
    }

    /// All leases that are alive as far as is known.
    pub(crate) fn live_leases(&self) -> Vec<Arc<Lease>> {
        let places: Vec<_> = self.leases.by_seconds.lock().values().cloned().collect();
        let leases = places.iter().filter_map(|place| place.try_lock().ok().and_then(|lease| lease.clone()));
        leases.filter(|lease| !lease.is_over()).collect()
    }

    /// Ends leases that carry nothing, so that they need not be waited out. The answer is not waited for, only that the
    /// servers can have heard of it: should they not, the lease ends by itself, and until then does nobody any harm.
    pub(crate) async fn give_leases_back(&self) {
        const PATIENCE: Duration = Duration::from_millis(1);
        let idle = self.live_leases().into_iter().filter(|lease| !self.claims.uses(lease.id));
        let revoke = |lease: Arc<Lease>| async move {
            let request = LeaseRequest { id: lease.id };
            let _ = self.link.call::<_, LeaseResponse>(path::LEASE_REVOKE, request).await;
        };
        let all = futures::future::join_all(idle.map(revoke));
        let _ = tokio::time::timeout(PATIENCE, all).await;
    }

    /// A lease for notes about claims that have ended: with at least a minute left, which is longer than
    /// a claim can be on its way.
    pub(crate) async fn grave_lease(&self) -> Result<i64> {
        const SECONDS: u64 = 120;
        let mut place = self.graves.lock().await;
        if let Some(lease) = &*place
            && lease.until().saturating_since(SystemClock.now()) > Duration::from_secs(SECONDS / 2)
        {
            return Ok(lease.id);
        }
        let lease = self.grant(SECONDS).await?;
        let id = lease.id;
        *place = Some(lease);
        Ok(id)
    }
}
