use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use palisade_core::{BootInstant, Claim, ClaimId, Clock, GoneReason, Renewed, Result, SystemClock};

use crate::claims::{Knowledge, Stand};
use crate::engine::Inner;
use crate::keys::News;
use crate::leases::Lease;
use crate::proto::{TimeToLiveRequest, TimeToLiveResponse, path};
use crate::take::buried_because;
use crate::txn::{Answers, Txn, all_under, get};

/// What was found out about a lease.
struct Checked {
    alive: bool,
    /// When it was refreshed, as sent.
    sent: BootInstant,
    /// The keys that are on it, as its leader knew them.
    keys: HashSet<Vec<u8>>,
}

impl Inner {
    /// Renews all leases that carry the claims, and looks whether they still do: three requests per
    /// lease, however many claims.
    pub(crate) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        self.link.line().await?;
        let known: Vec<_> = claims.iter().map(|claim| self.claims.get(claim.id)).collect();
        let mut leases: HashMap<i64, Arc<Lease>> = HashMap::new();
        for known in known.iter().flatten().filter(|known| known.is_live()) {
            leases.entry(known.seat.lease.id).or_insert_with(|| Arc::clone(&known.seat.lease));
        }
        let graves = async { if leases.is_empty() { Ok(HashMap::new()) } else { self.graves().await } };
        let checks = try_join_all(leases.values().map(|lease| self.check(lease)));
        let (checks, graves) = futures::future::try_join(checks, graves).await?;
        let checks: HashMap<i64, Checked> = leases.keys().copied().zip(checks).collect();
        let missing = self.missing(known.iter().flatten(), &checks).await?;
        let mut renewed = Vec::with_capacity(claims.len());
        for (claim, known) in claims.iter().zip(&known) {
            renewed.push(match known {
                Some(known) => self.renewed(known, checks.get(&known.seat.lease.id), &graves, &missing),
                None => self.renew_strange(claim).await?,
            });
        }
        for lease in leases.values().filter(|lease| !checks[&lease.id].alive) {
            self.lease_is_over(lease);
        }
        Ok(renewed)
    }

    fn renewed(
        &self,
        known: &Knowledge,
        check: Option<&Checked>,
        graves: &HashMap<ClaimId, GoneReason>,
        missing: &HashSet<ClaimId>,
    ) -> Renewed {
        let id = known.claim.id;
        let reason = match &known.stand {
            Stand::Gone(reason) => Some(reason.clone()),
            Stand::Lapsed { .. } => Some(GoneReason::Expired),
            _ => None,
        };
        let reason = reason
            .or_else(|| graves.get(&id).cloned())
            .or_else(|| (!check.is_some_and(|check| check.alive)).then(|| over_because(&known.seat.lease)))
            .or_else(|| missing.contains(&id).then_some(GoneReason::Unknown));
        let until = match (&reason, check) {
            (None, Some(check)) => self.claims.refreshed(id, check.sent),
            _ => None,
        };
        match (until, reason) {
            (Some(until), _) => Renewed::Valid { until },
            (None, reason) => {
                // It is told by this very answer.
                let reason = reason.unwrap_or(GoneReason::Expired);
                if !matches!(known.stand, Stand::Lapsed { .. }) {
                    self.claims.gone(id, reason.clone());
                }
                Renewed::Gone(reason)
            }
        }
    }

    /// Refreshes a lease and asks what is on it.
    async fn check(&self, lease: &Lease) -> Result<Checked> {
        if lease.has_run_out() {
            return Ok(Checked { alive: false, sent: SystemClock.now(), keys: HashSet::new() });
        }
        let request = TimeToLiveRequest { id: lease.id, keys: true };
        let keys = self.link.call::<_, TimeToLiveResponse>(path::LEASE_TIME_TO_LIVE, request);
        let (beat, keys) = futures::future::try_join(self.beat_id(lease.id, lease.ttl), keys).await?;
        let (ttl, sent) = beat;
        let alive = ttl > 0 && !lease.is_over();
        if alive {
            lease.refreshed_at(sent);
        }
        Ok(Checked { alive, sent, keys: keys.value.keys.into_iter().collect() })
    }

    /// Which of the claims have no lock key any more. A lease's list may be behind, so that what is not
    /// on it is asked for.
    async fn missing(
        &self,
        known: impl Iterator<Item = &Knowledge>,
        checks: &HashMap<i64, Checked>,
    ) -> Result<HashSet<ClaimId>> {
        const TOGETHER: usize = 100;
        let doubted: Vec<(ClaimId, Vec<u8>, Option<i64>)> = known
            .filter(|known| matches!(known.stand, Stand::Waiting | Stand::Held(_)))
            .filter_map(|known| {
                let lock = self.layout.resource(&known.claim.resource).lock(&known.seat.tail);
                let check = &checks[&known.seat.lease.id];
                (check.alive && !check.keys.contains(&lock)).then_some((
                    known.claim.id,
                    lock,
                    known.seat.created,
                ))
            })
            .collect();
        let mut missing = HashSet::new();
        for some in doubted.chunks(TOGETHER) {
            let txn = Txn::new().then_all(some.iter().map(|(_, lock, _)| get(lock.clone())));
            let mut answers = Answers::of(self.link.look(txn).await?.value);
            for (id, _, created) in some {
                if answers.key()?.map(|key| key.create_revision) != *created {
                    missing.insert(*id);
                }
            }
        }
        Ok(missing)
    }

    /// Which claims of this client were ended, and why.
    async fn graves(&self) -> Result<HashMap<ClaimId, GoneReason>> {
        let answer = self.link.range(all_under(&self.layout.client(&self.client))).await?;
        let graves =
            answer.value.kvs.iter().filter_map(|key| match self.layout.news_of(&self.client, &key.key)? {
                News::Gone(claim) => Some((claim, buried_because(key))),
                News::Lease(_) => None,
            });
        Ok(graves.collect())
    }

    /// Renews a claim that another connection made.
    async fn renew_strange(&self, claim: &Claim) -> Result<Renewed> {
        let line = self.line_of(&claim.resource).await?;
        let Some(at) = line.place_of(claim.id) else { return Ok(Renewed::Gone(GoneReason::Unknown)) };
        let ttl = claim.ttl.as_duration();
        let (left, sent) = self.beat_id(line.entries[at].lock.lease, ttl).await?;
        match u64::try_from(left) {
            Ok(left) if left > 0 => Ok(Renewed::Valid { until: sent + ttl.min(Duration::from_secs(left)) }),
            _ => Ok(Renewed::Gone(GoneReason::SessionLost)),
        }
    }

    /// Hears what was told to this client: claims that were ended, and leases that are no more.
    pub(crate) async fn take_news(&self) -> Result<()> {
        let leases = self.live_leases();
        let announced: Vec<_> = leases
            .iter()
            .filter(|lease| lease.announced.load(std::sync::atomic::Ordering::Acquire))
            .collect();
        let answer = self.link.range(all_under(&self.layout.client(&self.client))).await?;
        let mut alive = HashSet::new();
        for key in &answer.value.kvs {
            match self.layout.news_of(&self.client, &key.key) {
                Some(News::Gone(claim)) => self.is_gone(claim, buried_because(key)),
                Some(News::Lease(lease)) => {
                    alive.insert(lease);
                }
                None => {}
            }
        }
        for lease in announced.into_iter().filter(|lease| !alive.contains(&lease.id)) {
            self.lease_is_over(lease);
        }
        Ok(())
    }

    /// Why a claim of ours that is not there any more has ended.
    pub(crate) async fn why_gone(&self, known: &Knowledge) -> Result<GoneReason> {
        if let Some(reason) = self.graves().await?.remove(&known.claim.id) {
            return Ok(reason);
        }
        Ok(match &known.stand {
            Stand::Gone(reason) => reason.clone(),
            Stand::Lapsed { .. } => GoneReason::Expired,
            _ if known.until <= SystemClock.now() => GoneReason::Expired,
            _ if known.seat.lease.is_over() => over_because(&known.seat.lease),
            _ => GoneReason::Unknown,
        })
    }

    pub(crate) async fn why_unknown(&self, claim: ClaimId) -> Result<GoneReason> {
        match self.claims.get(claim) {
            Some(known) => self.why_gone(&known).await,
            None => Ok(GoneReason::Unknown),
        }
    }

    pub(crate) fn claims_of_lease_are_gone(&self, lease: &Lease) {
        for claim in self.claims.of_lease(lease.id) {
            self.is_gone(claim, over_because(lease));
        }
    }
}

/// Why a lease that is no more has ended: it ran out, or somebody ended it.
fn over_because(lease: &Lease) -> GoneReason {
    if lease.until() <= SystemClock.now() { GoneReason::Expired } else { GoneReason::SessionLost }
}
