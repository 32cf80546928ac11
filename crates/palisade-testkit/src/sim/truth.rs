use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use palisade_core::{
    BootInstant, Claim, ClaimId, Claimed, Condition, Engine, Name, Page, Renewed, Result, Selector, Token,
    TokenKind, Waited, Written,
};

use super::wire::{Reply, Request};

/// What the server did, in the order in which it did it, and the rules that it must keep.
///
/// Nobody but a simulation can see this: to clients, a server that breaks them may just look slow.
#[derive(Debug, Default)]
pub(super) struct Truth {
    claims: BTreeMap<ClaimId, Known>,
    arrivals: u64,
    /// The greatest token that each register accepted, per slot.
    fences: BTreeMap<(Name, Option<u32>), Token>,
}

#[derive(Debug)]
struct Known {
    resource: Name,
    /// By the server's own word.
    until: BootInstant,
    withdrawn: bool,
    /// Its place in the order of those who had to wait.
    arrival: Option<u64>,
    token: Option<Token>,
}

/// A broken rule: which checker found it, on what, and in words.
pub(super) type Broken = (&'static str, Name, String);

impl Truth {
    /// Takes in what was done. Returns the rules that were broken by it.
    pub(super) fn take_in(
        &mut self,
        request: &Request,
        reply: &Result<Reply>,
        engine: &dyn Engine,
        now: BootInstant,
    ) -> Vec<Broken> {
        let mut broken = Vec::new();
        match (request, reply) {
            (Request::Claim(claim), Ok(Reply::Claimed(claimed))) => {
                broken.extend(self.claimed(claim, claimed, engine, now));
            }
            (Request::Wait(claim), Ok(Reply::Waited(Waited::Granted(grant)))) => {
                broken.extend(self.granted(claim, grant.token));
            }
            (Request::Renew(claims), Ok(Reply::Renewed(answers))) => {
                for (claim, answer) in claims.iter().zip(answers) {
                    broken.extend(self.renewed(claim, answer, now));
                }
            }
            (Request::Withdraw(claims), Ok(_)) => {
                for claim in claims {
                    broken.extend(self.withdrawn(claim, engine));
                }
            }
            (Request::Write(register, _, condition, _), Ok(Reply::Written(Written::Done(_)))) => {
                broken.extend(self.written(register, condition));
            }
            _ => {}
        }
        broken
    }

    fn claimed(
        &mut self,
        claim: &Arc<Claim>,
        claimed: &Claimed,
        engine: &dyn Engine,
        now: BootInstant,
    ) -> Option<Broken> {
        let (until, token) = match claimed {
            Claimed::Granted(grant) => (grant.valid_until, Some(grant.token)),
            Claimed::Queued(place) => (place.valid_until, None),
            Claimed::Busy(_) => {
                let what = || "a claim that was turned away is there all the same".to_owned();
                return shows(engine, claim).then(|| ("busy", claim.resource.clone(), what()));
            }
        };
        let known = self.claims.get(&claim.id);
        if known.is_some_and(|known| known.withdrawn) {
            let what = "a claim was let in after it had been withdrawn: nobody gives it back".to_owned();
            return Some(("withdrawn", claim.resource.clone(), what));
        }
        if known.is_none_or(|known| known.until <= now) {
            self.arrivals += 1;
            let arrival = token.is_none().then_some(self.arrivals);
            let resource = claim.resource.clone();
            let known = Known { resource, until, withdrawn: false, arrival, token: None };
            self.claims.insert(claim.id, known);
        }
        token.and_then(|token| self.granted(claim, token))
    }

    /// Asked again, a grant has the same token; and who came first is served first.
    fn granted(&mut self, claim: &Claim, token: Token) -> Option<Broken> {
        let known = self.claims.get_mut(&claim.id)?;
        if let Some(before) = known.token.replace(token)
            && before != token
        {
            let what = format!("token {before} became {token} when it was asked for again");
            return Some(("again", claim.resource.clone(), what));
        }
        let arrival = known.arrival?;
        let overtaken = self.claims.values().find(|other| {
            let (Some(other_arrival), Some(other_token)) = (other.arrival, other.token) else { return false };
            other.resource == claim.resource
                && (other_arrival < arrival) != (other_token < token)
                && other_arrival != arrival
        });
        overtaken.map(|other| {
            let what = format!("tokens {token} and {:?} do not follow the order of arrival", other.token);
            ("order", claim.resource.clone(), what)
        })
    }

    /// A claim that is gone is never brought back, and one that is not is not called so.
    fn renewed(&mut self, claim: &Claim, answer: &Renewed, now: BootInstant) -> Option<Broken> {
        let known = self.claims.get_mut(&claim.id)?;
        let should_live = !known.withdrawn && known.until > now;
        let what = match answer {
            Renewed::Valid { until } => {
                known.until = *until;
                (!should_live).then_some("a claim that was gone was brought back by a renewal")
            }
            Renewed::Gone(_) => should_live.then_some("a claim that stands was called gone"),
        };
        what.map(|what| ("renewal", claim.resource.clone(), what.to_owned()))
    }

    fn withdrawn(&mut self, claim: &Arc<Claim>, engine: &dyn Engine) -> Option<Broken> {
        match self.claims.get_mut(&claim.id) {
            Some(known) => known.withdrawn = true,
            None => {
                let (resource, until) = (claim.resource.clone(), BootInstant::from_nanos(0));
                let known = Known { resource, until, withdrawn: true, arrival: None, token: None };
                self.claims.insert(claim.id, known);
            }
        }
        let what = "a claim is still there after it was withdrawn";
        shows(engine, claim).then(|| ("withdrawn", claim.resource.clone(), what.to_owned()))
    }

    /// Of holders that exclude each other, a register never takes an older one after a later one.
    fn written(&mut self, register: &Name, condition: &Condition) -> Option<Broken> {
        let token = condition.token.as_ref().filter(|token| token.kind == TokenKind::Exclusive)?;
        let mark = self.fences.entry((register.clone(), token.slot)).or_insert(token.token);
        if token.token < *mark {
            let what = format!("a write with token {} was accepted after one with {mark}", token.token);
            return Some(("fence", register.clone(), what));
        }
        *mark = token.token;
        None
    }
}

/// Whether the store shows the claim.
fn shows(engine: &dyn Engine, claim: &Claim) -> bool {
    let selector = Selector::resource(claim.resource.clone());
    let Some(Ok(seen)) = engine.inspect(&selector, &Page::default()).now_or_never() else { return false };
    let views = seen.resources.iter().flat_map(|view| view.holders.iter().chain(&view.waiters));
    views.into_iter().any(|view| view.claim == claim.id)
}
