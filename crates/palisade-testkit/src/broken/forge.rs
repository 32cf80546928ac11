//! How the faults bend what goes in and what comes out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palisade_core::{
    Claim, Claimed, Condition, Engine, FencingToken, Grant, Mode, Name, Renewed, Token, Ttl, Waited,
};

use super::Fault;
use super::engine::Broken;

impl Broken {
    /// One in `of`, over all connections.
    pub(super) fn now_and_then(&self, of: u64) -> bool {
        self.shared.count.fetch_add(1, Ordering::Relaxed) % of == of - 1
    }

    /// The name under which the engine keeps what the caller calls `name`.
    pub(super) fn bend_name(&self, name: &Name) -> Name {
        let text = name.as_str();
        let bent = match self.fault {
            Fault::NamesFolded => text.to_lowercase(),
            Fault::NamesCut => text.chars().take(64).collect(),
            _ => return name.clone(),
        };
        Name::from_stored(&bent).unwrap_or_else(|_| name.clone())
    }

    /// A register's name in its present life.
    pub(super) fn bend_register(&self, name: &Name) -> Name {
        let life = self.shared.lives.lock().get(name).copied().unwrap_or(0);
        if life == 0 {
            return self.bend_name(name);
        }
        Name::new(format!("life {life} of {}", self.namespace)).unwrap_or_else(|_| name.clone())
    }

    /// The claim as the engine is asked for it.
    pub(super) fn bend_claim(&self, claim: &Arc<Claim>) -> Arc<Claim> {
        self.shared.claims.lock().entry(claim.id).or_insert_with(|| Arc::clone(claim));
        let mut bent = Claim::clone(claim);
        bent.resource = self.bend_name(&claim.resource);
        match self.fault {
            Fault::ExpiryLost => bent.ttl = Ttl::new(Ttl::MAX).unwrap_or_default(),
            Fault::BusyLeavesClaim => bent.will_wait = true,
            _ => {}
        }
        Arc::new(bent)
    }

    pub(super) fn bend_condition(&self, condition: &Condition) -> Condition {
        let mut bent = condition.clone();
        match self.fault {
            Fault::StaleTokenAccepted => bent.token = None,
            Fault::SlotsShareFence => bent.token = bent.token.map(without_slot),
            _ => {}
        }
        bent
    }

    /// A grant as the caller is told of it.
    pub(super) fn bend_grant(&self, claim: &Claim, mut grant: Grant) -> Grant {
        match self.fault {
            Fault::TokenReused => grant.token = at_least_one(grant.token.get() / 2),
            Fault::AskedAgainCountsAnew => {
                let asked = self.shared.count.fetch_add(1, Ordering::Relaxed);
                grant.token = at_least_one(grant.token.get() + asked);
            }
            Fault::DeadlineTooLate => grant.valid_until = grant.valid_until + claim.ttl.as_duration(),
            Fault::ExpiryLost => {
                let forged = Ttl::MAX.saturating_sub(claim.ttl.as_duration());
                grant.valid_until = grant.valid_until.saturating_sub(forged);
            }
            Fault::SlotTwice => grant.slot = grant.slot.map(|_| 0),
            _ => {}
        }
        grant
    }

    pub(super) fn bend_claimed(&self, claim: &Claim, claimed: Claimed) -> Claimed {
        match claimed {
            Claimed::Granted(grant) => Claimed::Granted(self.bend_grant(claim, grant)),
            Claimed::Queued(mut place) => {
                if self.fault == Fault::DeadlineTooLate {
                    place.valid_until = place.valid_until + claim.ttl.as_duration();
                }
                Claimed::Queued(place)
            }
            Claimed::Busy(busy) => Claimed::Busy(busy),
        }
    }

    pub(super) fn bend_waited(&self, claim: &Claim, waited: Waited) -> Waited {
        match waited {
            Waited::Granted(grant) => Waited::Granted(self.bend_grant(claim, grant)),
            Waited::Gone(reason) => Waited::Gone(reason),
        }
    }

    pub(super) fn bend_renewed(&self, claim: &Claim, renewed: Renewed) -> Renewed {
        match renewed {
            Renewed::Valid { until } if self.fault == Fault::DeadlineTooLate => {
                Renewed::Valid { until: until + claim.ttl.as_duration() }
            }
            Renewed::Valid { until } if self.fault == Fault::ExpiryLost => {
                let forged = Ttl::MAX.saturating_sub(claim.ttl.as_duration());
                Renewed::Valid { until: until.saturating_sub(forged) }
            }
            other => other,
        }
    }

    /// A grant that the engine never made.
    pub(super) fn forged(&self, claim: &Claim) -> Grant {
        // Above all real ones, as a second server with a faster clock would have it.
        let number = 1_000_000 + self.shared.count.fetch_add(1, Ordering::Relaxed);
        let slot = matches!(claim.mode, Mode::Slot { .. }).then_some(0);
        let valid_until = self.clock.now() + claim.ttl.as_duration();
        Grant { token: at_least_one(number), slot, valid_until }
    }

    /// A wait that is over when the caller gives up.
    pub(super) async fn for_ever(&self) {
        self.clock.sleep_until(self.clock.now() + Duration::from_hours(1)).await;
    }

    /// The claim as somebody asked for it first.
    pub(super) fn known(&self, id: palisade_core::ClaimId) -> Option<Arc<Claim>> {
        let claim = self.shared.claims.lock().get(&id).cloned()?;
        Some(self.bend_claim(&claim))
    }

    /// Whether only readers hold the claim's resource.
    pub(super) async fn only_readers(&self, claim: &Claim) -> palisade_core::Result<bool> {
        let selector = palisade_core::Selector::resource(claim.resource.clone());
        let seen = self.inner.inspect(&selector, &palisade_core::Page::default()).await?;
        let mut holders = seen.resources.iter().flat_map(|view| &view.holders);
        Ok(holders.all(|holder| holder.mode == Mode::Shared))
    }
}

pub(super) fn without_slot(token: FencingToken) -> FencingToken {
    FencingToken { slot: None, ..token }
}

fn at_least_one(number: u64) -> Token {
    Token::new(number.max(1)).expect("a test has few grants")
}
