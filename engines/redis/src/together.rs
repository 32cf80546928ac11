use std::sync::Arc;

use futures::future::join_all;
use palisade_core::{
    Claim, Claimed, Clock, Departure, Error, Gathered, Mode, Result, SystemClock, Token, Withdrawn,
};
use redis::{Cmd, Value};

use crate::config::{Dialect, Servers};
use crate::engine::Inner;
use crate::error::{closed, unexpected};
use crate::link::Answer;
use crate::record::{are_alike, ttl_millis};
use crate::reply::Reply;
use crate::verbs::{Said, granted_alone, marked, resources};

/// How many claims go in one call: enough that it costs little more to be many, few enough that nobody else
/// has to wait for the server for long.
const AT_ONCE: usize = 64;

impl Inner {
    /// Asks for a claim, together with others if many ask. `new` says that it was never asked for.
    pub(crate) async fn ask_soon(self: &Arc<Self>, claim: &Arc<Claim>, new: bool) -> Result<Said> {
        let alone = self.claiming.alone();
        if alone.is_some()
            && new
            && let Some(said) = self.take_bare(claim).await?
        {
            return Ok(said);
        }
        let bare = self.claims.bare(claim.id).is_some();
        if alone.is_some() || bare || claim.mode != Mode::Exclusive || !self.may_gather() {
            let said = self.ask(claim, self.flag(claim)).await;
            if bare && matches!(said, Ok(Said::Gone(_))) {
                Box::pin(self.give_back(claim)).await?;
            }
            // What bare commands wrote may be there, whatever became of this.
            return if bare { said.map_err(Error::with_unknown_effect) } else { said };
        }
        let told = self.claiming.join(Arc::clone(claim), |departure| {
            tokio::spawn(ask_gathered(Arc::clone(self), departure));
        });
        told.await.map_err(|_| closed())?
    }

    /// Withdraws a claim, together with others if many withdraw.
    pub(crate) async fn withdraw_soon(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Withdrawn> {
        let alone = self.withdrawing.alone();
        if alone.is_some() || !self.may_gather() {
            return self.withdraw_one(claim).await;
        }
        let told = self.withdrawing.join(Arc::clone(claim), |departure| {
            tokio::spawn(withdraw_gathered(Arc::clone(self), departure));
        });
        told.await.map_err(|_| closed())?
    }

    async fn withdraw_one(&self, claim: &Arc<Claim>) -> Result<Withdrawn> {
        let [one] = self.withdraw_some(std::slice::from_ref(claim)).await?[..] else {
            return Err(unexpected());
        };
        Ok(one)
    }

    fn flag(&self, claim: &Claim) -> char {
        if claim.will_wait && self.claims.was_asked_before(claim.id) { 'r' } else { flag(claim) }
    }

    /// On a Cluster, each key has its own server.
    fn may_gather(&self) -> bool {
        self.config.dialect == Dialect::Plain && !matches!(self.config.servers, Servers::Cluster(_))
    }

    /// Asks for several claims at once.
    pub(crate) async fn claim_each(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Vec<Result<Claimed>> {
        let alike = |claim: &Arc<Claim>| {
            let usual = claim.mode == Mode::Exclusive && self.claims.bare(claim.id).is_none();
            usual && are_alike(&claims[0], claim)
        };
        let at_once = claims.len() > 1 && claims.len() <= AT_ONCE && self.may_gather();
        if !at_once || !claims.iter().all(|claim| alike(claim) && self.check(claim).is_ok()) {
            return join_all(claims.iter().map(|claim| self.claim(claim))).await;
        }
        let _under_way = self.claiming.depart();
        let now = SystemClock.now();
        let new: Vec<bool> = claims.iter().map(|claim| self.claims.asked(claim, now)).collect();
        let answers = match self.ask_in_one_call(claims).await {
            Ok(answers) => answers,
            Err(error) => claims.iter().map(|_| Err(error.for_another())).collect(),
        };
        let each = claims.iter().zip(new).zip(answers);
        each.map(|((claim, new), said)| self.conclude(claim, new, said)).collect()
    }

    async fn ask_together(&self, gathered: Vec<Gathered<Arc<Claim>, Result<Said>>>) {
        let _under_way = self.claiming.depart();
        if let [one] = &gathered[..] {
            let answer = self.ask(&one.question, self.flag(&one.question)).await;
            return tell_all(gathered, [answer]);
        }
        let claims: Vec<Arc<Claim>> = gathered.iter().map(|one| Arc::clone(&one.question)).collect();
        match self.ask_in_one_call(&claims).await {
            Ok(answers) => tell_all(gathered, answers),
            Err(error) => tell_error(gathered, &error),
        }
    }

    /// Asks for claims that are alike.
    async fn ask_in_one_call(&self, claims: &[Arc<Claim>]) -> Result<Vec<Result<Said>>> {
        let mut in_use = self.link.line().await?;
        let call = self.call_on(&self.scripts.claim, resources(claims), |command| {
            self.add_alike(command, claims, in_use.counts());
        });
        let Answer { value, sent } = self.link.call_over(&mut in_use, &call).await?;
        if let Value::Int(last) = value {
            let tokens = tokens(claims, u64::try_from(last).map_err(|_| unexpected())?)?;
            if let Some(last) = tokens.last() {
                in_use.counter.made(*last, claims[0].token_floor.is_none());
            }
            let answers = claims.iter().zip(tokens).map(|(claim, token)| {
                let said = granted_alone(claim, token, sent);
                self.note(claim, &said);
                Ok(said)
            });
            return Ok(answers.collect());
        }
        let values: Vec<Value> = Reply::new(value)?.collect();
        if values.len() != claims.len() {
            return Err(unexpected());
        }
        let answers = claims.iter().zip(values);
        Ok(answers.map(|(claim, value)| self.noted(claim, Answer { value, sent }, &in_use)).collect())
    }

    /// Adds what a script wants to know of claims that are alike; what they have in common once.
    fn add_alike(&self, command: &mut Cmd, claims: &[Arc<Claim>], counts: bool) {
        let Some(first) = claims.first() else { return };
        let row = row(claims);
        let how = match (first.token_floor, row, counts) {
            (Some(_), Some(first), _) => format!("={first}"),
            (Some(_), None, _) => "#".to_owned(),
            (None, _, true) => String::new(),
            (None, _, false) => "+".to_owned(),
        };
        let [head, tail] = self.records.parts(first, &self.client);
        command.arg(format!("*{}x{how}", flag(first))).arg(ttl_millis(first)).arg(head).arg(tail);
        for claim in claims {
            command.arg(&marked(claim.id, b' ')[..]);
            if let Some(floor) = claim.token_floor.filter(|_| row.is_none()) {
                command.arg(floor.get());
            }
        }
    }

    async fn withdraw_together(&self, gathered: Vec<Gathered<Arc<Claim>, Result<Withdrawn>>>) {
        let _under_way = self.withdrawing.depart();
        let claims: Vec<Arc<Claim>> = gathered.iter().map(|one| Arc::clone(&one.question)).collect();
        match self.withdraw_each(&claims).await {
            Ok(answers) => tell_all(gathered, answers),
            // Who withdraws asks again by itself.
            Err(error) => tell_error(gathered, &error),
        }
    }
}

async fn ask_gathered(inner: Arc<Inner>, departure: Departure<Arc<Claim>, Result<Said>>) {
    let gathered = departure.leave().await;
    join_all(portions(gathered, are_alike).into_iter().map(|some| inner.ask_together(some))).await;
}

async fn withdraw_gathered(inner: Arc<Inner>, departure: Departure<Arc<Claim>, Result<Withdrawn>>) {
    let gathered = departure.leave().await;
    join_all(portions(gathered, |_, _| true).into_iter().map(|some| inner.withdraw_together(some))).await;
}

/// What goes in one call each: claims that `fit` together, in the order in which they came.
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

/// The tokens of claims that were all granted at once: the last of a row; or 0, each as its floor hints.
fn tokens(claims: &[Arc<Claim>], last: u64) -> Result<Vec<Token>> {
    let count = claims.len() as u64;
    let token = |(at, claim): (usize, &Arc<Claim>)| match claim.token_floor {
        Some(floor) if last == 0 => floor.get().checked_add(1).and_then(Token::new),
        _ => (last + 1 + at as u64).checked_sub(count).and_then(Token::new),
    };
    claims.iter().enumerate().map(|one| token(one).ok_or_else(unexpected)).collect()
}

/// The first of their floors, if each is one above the one before.
fn row(claims: &[Arc<Claim>]) -> Option<u64> {
    let first = claims.first()?.token_floor?.get();
    let mut floors = claims.iter().zip(first..);
    floors.all(|(claim, floor)| claim.token_floor.is_some_and(|own| own.get() == floor)).then_some(first)
}

fn tell_all<A>(gathered: Vec<Gathered<Arc<Claim>, A>>, answers: impl IntoIterator<Item = A>) {
    for (one, answer) in gathered.into_iter().zip(answers) {
        one.tell(answer);
    }
}

fn tell_error<A>(gathered: Vec<Gathered<Arc<Claim>, Result<A>>>, error: &Error) {
    for one in gathered {
        one.tell(Err(error.for_another()));
    }
}

fn flag(claim: &Claim) -> char {
    if claim.will_wait { 'w' } else { 'n' }
}
