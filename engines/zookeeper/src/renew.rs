use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::try_join_all;
use palisade_core::{BootInstant, Claim, ClaimId, Clock, GoneReason, Mode, Renewed, Result, SystemClock};

use crate::claims::{Knowledge, Stand};
use crate::engine::Inner;
use crate::error::{Code, closed, code_of};
use crate::keys::Layout;
use crate::proto::{agree, get_ephemerals};
use crate::session::Session;

/// What was found out about a session.
struct Checked {
    /// When that was asked for; `None` if the session is over.
    sent: Option<BootInstant>,
    /// The nodes that are on it.
    nodes: HashSet<String>,
}

impl Inner {
    /// Has all sessions that carry the claims show that they live, and what is still on them: two requests
    /// per session, however many claims.
    pub(crate) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        if self.is_closed() {
            return Err(closed());
        }
        let known: Vec<_> = claims.iter().map(|claim| self.claims.get(claim.id)).collect();
        let mut sessions: HashMap<i64, Arc<Session>> = HashMap::new();
        for known in known.iter().flatten().filter(|known| known.is_live()) {
            sessions.entry(known.seat.session.id()).or_insert_with(|| Arc::clone(&known.seat.session));
        }
        let checks = try_join_all(sessions.values().map(|session| self.check(session))).await?;
        let checks: HashMap<i64, Checked> = sessions.keys().copied().zip(checks).collect();
        let missing = self.missing(known.iter().flatten(), &checks).await?;
        let renewed = known.iter().map(|known| match known {
            Some(known) => self.renewed(known, checks.get(&known.seat.session.id()), &missing),
            // A session is its client's own, and so is what is on it.
            None => Renewed::Gone(GoneReason::Unknown),
        });
        Ok(renewed.collect())
    }

    fn renewed(
        &self,
        known: &Knowledge,
        check: Option<&Checked>,
        missing: &HashMap<ClaimId, GoneReason>,
    ) -> Renewed {
        let id = known.claim.id;
        let sent = check.and_then(|check| check.sent);
        let reason = match &known.stand {
            Stand::Gone(reason) => Some(reason.clone()),
            Stand::Lapsed { .. } => Some(GoneReason::Expired),
            _ if sent.is_none() => Some(over_because(known)),
            _ => missing.get(&id).cloned(),
        };
        let until = match (&reason, sent) {
            (None, Some(sent)) => self.claims.refreshed(id, sent),
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

    /// Asks whether a session lives, and what is on it.
    async fn check(&self, session: &Arc<Session>) -> Result<Checked> {
        let asked = async {
            let conn = session.conn().await?;
            let (agreed, nodes) = (conn.send(agree()), conn.send(get_ephemerals(&self.layout.root)));
            let sent = agreed.sent;
            session.answer(agreed).await?.ok()?;
            let nodes = session.answer(nodes).await?.ok()?.texts()?;
            Ok(Checked { sent: Some(sent), nodes: nodes.into_iter().collect() })
        };
        match asked.await {
            Err(error) if code_of(&error) == Some(Code::SESSION_EXPIRED) => {
                Ok(Checked { sent: None, nodes: HashSet::new() })
            }
            checked => checked,
        }
    }

    /// Which of the claims have no node any more, though their sessions live; and why.
    async fn missing(
        &self,
        known: impl Iterator<Item = &Knowledge>,
        checks: &HashMap<i64, Checked>,
    ) -> Result<HashMap<ClaimId, GoneReason>> {
        let mut missing = HashMap::new();
        for known in known.filter(|known| matches!(known.stand, Stand::Waiting | Stand::Held(_))) {
            let Some(check) = checks.get(&known.seat.session.id()).filter(|check| check.sent.is_some())
            else {
                continue;
            };
            let Some(node) = &known.seat.node else { continue };
            let path = format!("{}/{}", self.layout.resource(&known.claim.resource), node.name);
            // With its slot it got another node, of which we may not have heard yet.
            let lease = || {
                let folder = self.layout.resource(&known.claim.resource);
                let lease = format!("{folder}/{}", Layout::lease(known.claim.id));
                check.nodes.iter().any(|node| node.starts_with(&lease))
            };
            let is_slot = matches!(known.claim.mode, Mode::Slot { .. });
            if !(check.nodes.contains(&path) || is_slot && lease()) {
                missing.insert(known.claim.id, self.why_gone(known.claim.id).await?);
            }
        }
        Ok(missing)
    }

    /// Why a claim of ours that is not there any more has ended.
    pub(crate) async fn why_gone(&self, claim: ClaimId) -> Result<GoneReason> {
        if self.claims.get(claim).is_none() {
            return Ok(GoneReason::Unknown);
        }
        self.take_news().await?;
        let Some(known) = self.claims.get(claim) else { return Ok(GoneReason::Unknown) };
        Ok(match &known.stand {
            Stand::Gone(reason) => reason.clone(),
            Stand::Lapsed { .. } => GoneReason::Expired,
            _ if known.until <= SystemClock.now() => GoneReason::Expired,
            _ if known.seat.session.is_over() => GoneReason::SessionLost,
            _ => GoneReason::Unknown,
        })
    }
}

/// Why a claim whose session is no more has ended: it ran out, or somebody ended it.
fn over_because(known: &Knowledge) -> GoneReason {
    if known.until <= SystemClock.now() { GoneReason::Expired } else { GoneReason::SessionLost }
}
