use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Claim, ClaimId, GoneReason, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What this client knows of its own claims, without asking.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashMap<ClaimId, Known>>);

#[derive(Debug)]
struct Known {
    claim: Arc<Claim>,
    /// The moment before the last refresh that reached the server was sent.
    refreshed: BootInstant,
    /// Whether the server has said so; until then it is a guess on the safe side.
    answered: bool,
    /// Whether the claim may be on its way more than once. Once is no reason for doubt: a withdrawal that
    /// overtakes it finds nothing, and sees to it that it does not come in.
    doubtful: bool,
    /// Whether it was asked for more than once: then it may be in line already.
    again: bool,
    /// How many copies of a claim that had been answered are on their way. One that arrived after a withdrawal, which found
    /// the claim and so saw no reason to keep others out, would come in for nobody.
    repeated: u32,
    /// The token that bare commands wrote, or may have, as long as it is not known to be the claim's.
    bare: Option<Token>,
    stand: Stand,
    /// Woken when the stand changes; made by the first who waits.
    turn: Option<Arc<Notify>>,
    /// When to look again, as the last answer said, until somebody waits by it.
    look: Option<Look>,
}

/// When a waiter should look again by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// When whoever is ahead expires, if ever.
    pub(crate) at: Option<BootInstant>,
    /// Whether it is another client's lock that this claim, as the first in line, waits for.
    pub(crate) foreign: bool,
}

/// How a claim stands, as far as this client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It was sent; no answer yet.
    Asked,
    Waiting,
    Held(Held),
    Gone(GoneReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) token: Token,
    pub(crate) slot: Option<u32>,
}

impl Claims {
    /// Notes a claim before it is sent: its grant may be told before its answer is read. Returns whether
    /// it is new here.
    pub(crate) fn asked(&self, claim: &Arc<Claim>, now: BootInstant) -> bool {
        let mut all = self.0.lock();
        match all.entry(claim.id) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                // The copy that was sent before is yet to be answered, or never will be.
                known.doubtful |= known.stand == Stand::Asked;
                known.again = true;
                known.repeated += 1;
                false
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Known {
                    claim: Arc::clone(claim),
                    refreshed: now,
                    answered: false,
                    doubtful: false,
                    again: false,
                    repeated: 0,
                    bare: None,
                    stand: Stand::Asked,
                    turn: None,
                    look: None,
                });
                true
            }
        }
    }

    /// Notes that one of the copies that were asked for again has been answered, or was never sent.
    pub(crate) fn answered_again(&self, claim: ClaimId) {
        if let Some(known) = self.0.lock().get_mut(&claim) {
            known.repeated = known.repeated.saturating_sub(1);
        }
    }

    /// Whether a claim was asked for more than once.
    pub(crate) fn was_asked_before(&self, claim: ClaimId) -> bool {
        self.0.lock().get(&claim).is_none_or(|known| known.again)
    }

    /// Forgets a claim that never reached the server.
    pub(crate) fn never_sent(&self, claim: ClaimId) {
        self.0.lock().remove(&claim);
    }

    /// Notes that a claim may have reached the server, or may yet.
    pub(crate) fn in_doubt(&self, claim: ClaimId) {
        if let Some(known) = self.0.lock().get_mut(&claim) {
            known.doubtful = true;
        }
    }

    /// Notes an answer: the claim waits.
    pub(crate) fn waits(&self, claim: ClaimId, look: Look) {
        if let Some(known) = self.0.lock().get_mut(&claim) {
            known.look = Some(look);
            known.bare = None;
            if known.stand == Stand::Asked {
                known.stand = Stand::Waiting;
            }
        }
    }

    /// What the last answer said about when to look again; once.
    pub(crate) fn take_look(&self, claim: ClaimId) -> Option<Look> {
        self.0.lock().get_mut(&claim)?.look.take()
    }

    /// Notes a grant. What is gone stays gone.
    pub(crate) fn holds(&self, claim: ClaimId, held: Held) {
        if let Some(known) = self.0.lock().get_mut(&claim)
            && !matches!(known.stand, Stand::Gone(_))
        {
            known.change(Stand::Held(held));
        }
    }

    /// Notes a grant in answer to a call that was sent at `began`.
    pub(crate) fn granted(&self, claim: ClaimId, held: Held, began: BootInstant) {
        if let Some(known) = self.0.lock().get_mut(&claim) {
            if !matches!(known.stand, Stand::Gone(_)) {
                known.change(Stand::Held(held));
            }
            known.refresh(began);
            known.bare = None;
        }
    }

    /// Notes that bare commands are about to be sent that write such a token.
    pub(crate) fn sent_bare(&self, claim: ClaimId, token: Token) {
        if let Some(known) = self.0.lock().get_mut(&claim) {
            known.bare = Some(token);
        }
    }

    /// Notes that nothing of what bare commands wrote is there.
    pub(crate) fn is_not_bare(&self, claim: ClaimId) {
        if let Some(known) = self.0.lock().get_mut(&claim) {
            known.bare = None;
        }
    }

    /// The token that bare commands wrote, or may have, if it is not known to be the claim's.
    pub(crate) fn bare(&self, claim: ClaimId) -> Option<Token> {
        self.0.lock().get(&claim)?.bare
    }

    /// Forgets a claim that is to be withdrawn. Returns whether it may be on its way more than once.
    pub(crate) fn withdrawn(&self, claim: ClaimId) -> bool {
        self.0.lock().remove(&claim).is_none_or(|mut known| {
            known.change(Stand::Gone(GoneReason::Withdrawn));
            known.doubtful || known.repeated > 0
        })
    }

    /// Notes that a claim is no more. Returns whether it was held until now.
    pub(crate) fn gone(&self, claim: ClaimId, reason: GoneReason) -> bool {
        let mut all = self.0.lock();
        let Some(known) = all.get_mut(&claim) else { return false };
        let held = matches!(known.stand, Stand::Held(_));
        if !matches!(known.stand, Stand::Gone(_)) {
            known.change(Stand::Gone(reason));
        }
        // Who waits is yet to hear of it; who held is told otherwise.
        if held {
            all.remove(&claim);
        }
        held
    }

    /// Notes that a refresh sent at `sent` reached the server.
    pub(crate) fn refreshed(&self, claim: ClaimId, sent: BootInstant) {
        if let Some(known) = self.0.lock().get_mut(&claim) {
            known.refresh(sent);
        }
    }

    /// Forgets a claim. Whoever still waits for it is told that it is gone.
    pub(crate) fn forget(&self, claim: ClaimId, reason: GoneReason) {
        if let Some(mut known) = self.0.lock().remove(&claim) {
            known.change(Stand::Gone(reason));
        }
    }

    /// How a claim stands, and until when by its last refresh.
    pub(crate) fn stand(&self, claim: ClaimId) -> Option<(Stand, BootInstant)> {
        let all = self.0.lock();
        let known = all.get(&claim)?;
        Some((known.stand.clone(), known.refreshed + known.claim.ttl.as_duration()))
    }

    /// What is woken when the claim's stand changes.
    pub(crate) fn turn(&self, claim: ClaimId) -> Option<Arc<Notify>> {
        let mut all = self.0.lock();
        let known = all.get_mut(&claim)?;
        Some(Arc::clone(known.turn.get_or_insert_with(Arc::default)))
    }

    /// All claims that are held.
    pub(crate) fn held(&self) -> Vec<Arc<Claim>> {
        let all = self.0.lock();
        let held = all.values().filter(|known| matches!(known.stand, Stand::Held(_)));
        held.map(|known| Arc::clone(&known.claim)).collect()
    }

    /// Why a claim that the server does not know ended, where nobody said so.
    pub(crate) fn why_unknown(&self, claim: ClaimId, now: BootInstant) -> GoneReason {
        match self.stand(claim) {
            Some((Stand::Gone(reason), _)) => reason,
            // Within the margin of two clocks, it is more likely that time is up than anything else.
            Some((_, until)) if until <= now + Duration::from_millis(2) => GoneReason::Expired,
            _ => GoneReason::Unknown,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Wakes everyone who waits, to look again.
    pub(crate) fn wake_all(&self) {
        self.0.lock().values().filter_map(|known| known.turn.as_ref()).for_each(|turn| turn.notify_waiters());
    }
}

impl Known {
    fn refresh(&mut self, sent: BootInstant) {
        // The first answer counts as it is: this host may have asked after a claim that is older.
        self.refreshed = if self.answered { self.refreshed.max(sent) } else { sent };
        self.answered = true;
    }

    fn change(&mut self, stand: Stand) {
        self.stand = stand;
        if let Some(turn) = &self.turn {
            turn.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Mode, Name, Owner, Ttl};

    use super::*;

    fn claim() -> Arc<Claim> {
        let owner = Arc::new(Owner::this_process());
        Arc::new(Claim::new(Name::new("a").unwrap(), Mode::Exclusive, Ttl::default(), owner))
    }

    fn at(secs: u64) -> BootInstant {
        BootInstant::from_nanos(secs * 1_000_000_000)
    }

    fn ends(claims: &Claims, claim: &Claim) -> BootInstant {
        claims.stand(claim.id).unwrap().1
    }

    #[test]
    fn a_claim_counts_from_its_first_try_until_the_server_says_otherwise() {
        let (claims, claim) = (Claims::default(), claim());
        assert!(claims.asked(&claim, at(10)));
        claims.in_doubt(claim.id);
        assert!(!claims.asked(&claim, at(17)), "a second try is no new claim");
        assert_eq!(ends(&claims, &claim), at(25));
        claims.refreshed(claim.id, at(12));
        claims.refreshed(claim.id, at(11));
        assert_eq!(ends(&claims, &claim), at(27), "a later refresh stands");
    }

    #[test]
    fn a_claim_of_another_connection_ends_when_the_server_says() {
        let (claims, claim) = (Claims::default(), claim());
        claims.asked(&claim, at(20));
        claims.refreshed(claim.id, at(8));
        assert_eq!(ends(&claims, &claim), at(23));
    }

    #[test]
    fn a_claim_that_may_be_on_its_way_twice_is_doubtful() {
        let (claims, claim) = (Claims::default(), claim());
        assert!(claims.withdrawn(claim.id), "nothing is known of it");
        claims.asked(&claim, at(1));
        assert!(!claims.withdrawn(claim.id), "there is one, wherever it is");
        claims.asked(&claim, at(1));
        claims.asked(&claim, at(2));
        assert!(claims.withdrawn(claim.id), "there may be two");
        let held = Held { token: Token::new(1).unwrap(), slot: None };
        claims.asked(&claim, at(1));
        claims.granted(claim.id, held, at(1));
        assert!(!claims.withdrawn(claim.id));
        claims.asked(&claim, at(1));
        claims.granted(claim.id, held, at(1));
        claims.in_doubt(claim.id);
        assert!(claims.withdrawn(claim.id));
    }

    /// A quorum raises the token of what it holds, and may give it back before that is answered.
    #[test]
    fn a_claim_that_is_held_is_doubtful_while_it_is_asked_for_again() {
        let (claims, claim) = (Claims::default(), claim());
        let held = Held { token: Token::new(1).unwrap(), slot: None };
        let take = || {
            claims.asked(&claim, at(1));
            claims.granted(claim.id, held, at(1));
            claims.asked(&claim, at(2));
        };
        take();
        assert!(claims.withdrawn(claim.id), "a copy may arrive later");
        take();
        claims.answered_again(claim.id);
        assert!(!claims.withdrawn(claim.id), "both have arrived");
    }
}
