use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use palisade_core::{Claim, ClaimId, Clock, Renewed, Result, SystemClock};

use crate::engine::Inner;
use crate::error::unexpected;
use crate::groups::{Joining, Kept, Plan};

/// What became of the claims at some places, and which of them must be asked for again because their lease is no more, is not
/// whole, or is not theirs any more.
type Answered = (Vec<(usize, Renewed)>, Vec<usize>);

/// The places that one statement was about, and what came of it.
type Part = (Vec<usize>, Result<Answered>);

impl Inner {
    const ROUNDS: usize = 5;

    /// Renews claims: by leases, where they were renewed together before, else one by one.
    pub(crate) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let mut renewed: Vec<Option<Renewed>> = claims.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..claims.len()).collect();
        let (mut heard, mut failure) = (false, None);
        // Of a lease that turns out not to be whole, each claim is asked for; unless it moved on to another meanwhile.
        for _ in 0..Self::ROUNDS {
            let some: Vec<Arc<Claim>> = open.iter().map(|place| Arc::clone(&claims[*place])).collect();
            let plan = self.plan(&some);
            // Together: one that takes its time must not make the others late.
            let parts = futures::future::join(self.keep(&some, &plan), self.renew_each(&some, &plan.each));
            let (kept, each) = parts.await;
            let mut lost = Vec::new();
            for (places, part) in each.into_iter().chain([kept]) {
                match part {
                    Ok((answers, left)) => {
                        heard |= !answers.is_empty();
                        lost.extend(left);
                        for (place, answer) in answers {
                            renewed[open[place]] = Some(answer);
                        }
                    }
                    // What stands in the way of these is no word on the others; they stand as they did.
                    Err(error) => {
                        for place in places {
                            renewed[open[place]] = self.unchanged(some[place].id);
                        }
                        failure = failure.or(Some(error));
                    }
                }
            }
            open = lost.into_iter().map(|place| open[place]).collect();
            if open.is_empty() {
                break;
            }
        }
        match failure {
            Some(error) if !heard => Err(error),
            _ => renewed.into_iter().collect::<Option<_>>().ok_or_else(unexpected),
        }
    }

    /// That a claim stands until when it was last said to.
    fn unchanged(&self, claim: ClaimId) -> Option<Renewed> {
        self.claims.stand(claim).map(|(_, until)| Renewed::Valid { until })
    }

    fn plan(&self, claims: &[Arc<Claim>]) -> Plan {
        let own = |claim: ClaimId| self.claims.seq(claim).is_some();
        self.groups.plan(claims, own, SystemClock.now())
    }

    /// Renews leases, of the claims at these places.
    async fn keep(&self, claims: &[Arc<Claim>], plan: &Plan) -> Part {
        let places = plan.keep.iter().flat_map(|kept| kept.places.iter().copied()).collect();
        (places, self.keep_leases(claims, plan).await)
    }

    async fn keep_leases(&self, claims: &[Arc<Claim>], plan: &Plan) -> Result<Answered> {
        if plan.keep.is_empty() {
            return Ok(<_>::default());
        }
        let leases: Vec<_> = plan.keep.iter().map(|kept| (kept.number, kept.ttl)).collect();
        let left = plan.left.iter().map(|(claim, lease)| (&**claim, self.claims.seq(claim.id), *lease));
        let left: Vec<_> = left.collect();
        let line = self.link.line().await?;
        let (numbers, sent) = line.keep(&self.config.namespace, &self.client, &leases, &left).await?;
        let numbers: HashSet<i32> = numbers.into_iter().collect();
        let (whole, broken): (Vec<&Kept>, Vec<&Kept>) =
            plan.keep.iter().partition(|kept| numbers.contains(&kept.number));
        let (mut renewed, mut lost) = (Vec::new(), Vec::new());
        for kept in whole {
            let is_on = self.groups.kept(kept, sent);
            for place in &kept.places {
                let claim = claims[*place].id;
                if is_on(claim) {
                    self.claims.refreshed(claim, sent);
                    renewed.push((*place, Renewed::Valid { until: sent + kept.ttl }));
                } else {
                    lost.push(*place);
                }
            }
        }
        for kept in broken {
            self.groups.is_gone(kept.number);
            lost.extend(&kept.places);
        }
        Ok((renewed, lost))
    }

    async fn renew_each(&self, claims: &[Arc<Claim>], each: &[Joining]) -> Vec<Part> {
        const AT_ONCE: usize = 4;
        let parts: Vec<_> = each.iter().map(|some| self.renew_part(claims, some)).collect();
        stream::iter(parts).buffered(AT_ONCE).collect().await
    }

    async fn renew_part(&self, claims: &[Arc<Claim>], some: &Joining) -> Part {
        let answered = self.renew_some(claims, some).await;
        (some.places.clone(), answered.map(|renewed| (renewed, Vec::new())))
    }

    async fn renew_some(&self, claims: &[Arc<Claim>], some: &Joining) -> Result<Vec<(usize, Renewed)>> {
        let claims: Vec<&Arc<Claim>> = some.places.iter().map(|place| &claims[*place]).collect();
        let asked: Vec<_> =
            claims.iter().map(|claim| (&***claim, self.claims.seq(claim.id), some.number)).collect();
        let line = self.link.line().await?;
        let (answers, sent) = line.renew(&self.config.namespace, &self.client, &asked).await?;
        let now = SystemClock.now();
        let on: HashMap<ClaimId, Option<i32>> =
            claims.iter().zip(&answers).map(|(claim, answer)| (claim.id, answer.ahead)).collect();
        if let Some(number) = some.number {
            self.groups.joined(number, |claim| on.get(&claim).is_some_and(|lease| *lease == Some(number)));
        }
        let renewed = claims.iter().zip(&some.places).zip(answers).map(|((claim, place), answer)| {
            if answer.verdict == b'v' {
                self.claims.refreshed(claim.id, sent);
                return (*place, Renewed::Valid { until: sent + claim.ttl.as_duration() });
            }
            let reason = self.why(claim.id, answer.note.as_deref(), now);
            self.claims.gone(claim.id, reason.clone());
            self.groups.forget(claim.id);
            (*place, Renewed::Gone(reason))
        });
        Ok(renewed.collect())
    }
}
