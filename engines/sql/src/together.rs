use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use palisade_core::{Claim, Claimed, Clock, Departure, Gathered, Result, SystemClock, Withdrawn};

use crate::engine::Inner;
use crate::error::{closed, unexpected};
use crate::verbs::{Said, check, how};

/// How many claims go in one statement: enough that they share a commit, few enough that nobody has to wait for
/// the others for long.
const AT_ONCE: usize = 64;

/// How many statements are under way before others wait to go with more: the server does one after the other.
const UNDER_WAY: usize = 2;

/// How long they wait for that.
const PATIENCE: Duration = Duration::from_millis(5);

impl Inner {
    /// Asks for a claim, together with others if many ask.
    pub(crate) async fn ask_soon(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Said> {
        if let Some(_alone) = self.claiming.alone() {
            return self.ask(claim, how(claim)).await;
        }
        let told = self.claiming.join(Arc::clone(claim), |departure| {
            tokio::spawn(ask_gathered(Arc::clone(self), departure));
        });
        told.await.map_err(|_| closed())?
    }

    /// Withdraws a claim, together with others if many withdraw.
    pub(crate) async fn withdraw_soon(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Withdrawn> {
        if let Some(_alone) = self.withdrawing.alone() {
            return self.withdraw_some(std::slice::from_ref(claim)).await?.pop().ok_or_else(unexpected);
        }
        let told = self.withdrawing.join(Arc::clone(claim), |departure| {
            tokio::spawn(withdraw_gathered(Arc::clone(self), departure));
        });
        told.await.map_err(|_| closed())?
    }

    /// Asks for several claims at once.
    pub(crate) async fn claim_each(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        let fit = |claim: &Arc<Claim>| claim.owner == claims[0].owner && check(claim).is_ok();
        if claims.len() < 2 || claims.len() > AT_ONCE || !claims.iter().all(fit) {
            return join_all(claims.iter().map(|claim| self.claim(claim))).await;
        }
        let _under_way = self.claiming.depart();
        let now = SystemClock.now();
        let new: Vec<bool> = claims.iter().map(|claim| self.claims.asked(claim, now)).collect();
        let asks: Vec<_> = claims.iter().map(|claim| (&**claim, how(claim))).collect();
        let answers = match self.ask_each(&asks).await {
            Ok(answers) => answers,
            Err(error) => claims.iter().map(|_| Err(error.for_another())).collect(),
        };
        let each = claims.iter().zip(new).zip(answers);
        each.map(|((claim, new), said)| self.conclude(claim, new, said)).collect()
    }

    async fn ask_together(&self, gathered: Vec<Gathered<Arc<Claim>, Result<Said>>>) {
        let _under_way = self.claiming.depart();
        let claims: Vec<Arc<Claim>> = gathered.iter().map(|one| Arc::clone(&one.question)).collect();
        let asks: Vec<_> = claims.iter().map(|claim| (&**claim, how(claim))).collect();
        match self.ask_each(&asks).await {
            Ok(answers) => gathered.into_iter().zip(answers).for_each(|(one, answer)| one.tell(answer)),
            Err(error) => gathered.into_iter().for_each(|one| one.tell(Err(error.for_another()))),
        }
    }

    async fn withdraw_together(&self, gathered: Vec<Gathered<Arc<Claim>, Result<Withdrawn>>>) {
        let _under_way = self.withdrawing.depart();
        let claims: Vec<Arc<Claim>> = gathered.iter().map(|one| Arc::clone(&one.question)).collect();
        match self.withdraw_some(&claims).await {
            Ok(answers) => gathered.into_iter().zip(answers).for_each(|(one, answer)| one.tell(Ok(answer))),
            // Who withdraws asks again by itself.
            Err(error) => gathered.into_iter().for_each(|one| one.tell(Err(error.for_another()))),
        }
    }
}

async fn ask_gathered(inner: Arc<Inner>, departure: Departure<Arc<Claim>, Result<Said>>) {
    inner.claiming.until_below(UNDER_WAY, PATIENCE).await;
    let gathered = departure.leave().await;
    let alike = |one: &Claim, other: &Claim| one.owner == other.owner;
    join_all(portions(gathered, alike).into_iter().map(|some| inner.ask_together(some))).await;
}

async fn withdraw_gathered(inner: Arc<Inner>, departure: Departure<Arc<Claim>, Result<Withdrawn>>) {
    inner.withdrawing.until_below(UNDER_WAY, PATIENCE).await;
    let gathered = departure.leave().await;
    join_all(portions(gathered, |_, _| true).into_iter().map(|some| inner.withdraw_together(some))).await;
}

/// What goes in one statement each: claims that `fit` together, in the order in which they came.
fn portions<A>(
    gathered: Vec<Gathered<Arc<Claim>, A>>,
    fit: fn(&Claim, &Claim) -> bool,
) -> Vec<Vec<Gathered<Arc<Claim>, A>>> {
    let mut portions: Vec<Vec<Gathered<Arc<Claim>, A>>> = Vec::new();
    for one in gathered {
        let fits = |some: &&mut Vec<Gathered<Arc<Claim>, A>>| {
            some.len() < AT_ONCE && fit(&some[0].question, &one.question)
        };
        // From the last on: all before it are full, or of another kind.
        match portions.iter_mut().rev().find(fits) {
            Some(some) => some.push(one),
            None => portions.push(vec![one]),
        }
    }
    portions
}
