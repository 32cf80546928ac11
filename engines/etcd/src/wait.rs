use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Claim, Clock, GoneReason, Mode, Result, SystemClock, Token, Waited};

use crate::claims::{Held, Stand, is_alone};
use crate::engine::Inner;
use crate::error::{closed, unexpected};
use crate::keys::Resource;
use crate::line::{Blocker, Standing, look_behind, look_nearby};
use crate::link::InUse;
use crate::proto::{RangeResponse, TxnResponse};
use crate::take::Found;
use crate::txn::{Answers, Txn};
use crate::watching::{Ear, Happened};

/// What a waiter listens to.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Over which connection.
    number: u64,
    blocker: Blocker,
    pub(crate) ear: Ear,
    /// Hears if the claim's own key is written.
    own: Option<Own>,
}

/// A watch of a claim's own key.
#[derive(Debug)]
struct Own {
    /// The end of that key: the next claim may have another.
    tail: String,
    ear: Ear,
    /// Whether the last turn was passed on.
    told: bool,
}

impl Listening {
    /// What happens to the own key if whoever was ahead held, has left, and passed it on to the claim made at
    /// `created`: both in one step.
    fn passed_on(&self, created: i64) -> Option<Happened> {
        let left = self.ear.last();
        let by_key = matches!(self.blocker, Blocker::Key { puts: false, .. });
        (by_key && left.created == 0 && left.revision > created)
            .then_some(Happened { revision: left.revision, created })
    }

    /// Completes once it was passed on; never if it was not.
    async fn until_passed_on(&self, created: i64) {
        match (self.passed_on(created), &self.own) {
            (Some(passed), Some(own)) => own.ear.until_last(passed).await,
            _ => std::future::pending().await,
        }
    }
}

impl Inner {
    /// Looks, watches whoever is in the way, looks again once the watch stands, and then after every
    /// event: a watch begins now, so what happened before it stood is found by the second look.
    pub(crate) async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let mut listening: Option<Listening> = None;
        let began = SystemClock.now();
        loop {
            if self.link.is_closed() {
                return Err(closed());
            }
            let Some(known) = self.claims.get(claim.id) else {
                return Ok(Waited::Gone(GoneReason::Unknown));
            };
            let told = known.turn.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            match known.stand {
                Stand::Held(held) => return self.grant_of(claim, held).map(Waited::Granted),
                Stand::Gone(reason) => return Ok(Waited::Gone(reason)),
                // It is being deleted; its end is told.
                Stand::Lapsed { .. } => {
                    tokio::select! {
                        () = told => {}
                        () = self.link.until_closed() => {}
                    }
                    continue;
                }
                Stand::Asked | Stand::Waiting => {}
            }
            match self.turn(claim, &mut listening).await {
                Ok(Some(waited)) => {
                    if let (Waited::Granted(_), Some(listening)) = (&waited, listening) {
                        self.linger(claim, listening, SystemClock.now().saturating_since(began));
                    }
                    return Ok(waited);
                }
                Ok(None) => {}
                // The place in line outlives a connection, and servers that cannot decide for a while.
                Err(error) if error.is_transient() => {
                    listening = None;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let Some(Listening { number, ear, own, .. }) = &mut listening else { continue };
            tokio::select! {
                something = ear.something() => {
                    if something.is_err() {
                        listening = None;
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                () = told => {}
                () = self.settle_in(claim, *number, own) => {}
                () = self.link.until_closed() => {}
            }
        }
    }

    /// Looks once. `None` with an ear that stands if there is nothing to do but to listen, `None`
    /// without one if it must be looked again at once.
    async fn turn(&self, claim: &Arc<Claim>, listening: &mut Option<Listening>) -> Result<Option<Waited>> {
        if let Some(waited) = self.short_turn(claim, listening).await? {
            return Ok(waited);
        }
        let (line, at) = match self.look(claim, true).await? {
            Found::At(line, at) => (line, at),
            Found::Gone(reason) => {
                self.is_gone(claim.id, reason.clone());
                return Ok(Some(Waited::Gone(reason)));
            }
        };
        match self.advance(claim, &line, at).await? {
            None => *listening = None,
            Some(Standing::Holds { slot }) => {
                // A lease that may have run out unnoticed is asked after before anything is said.
                let Some(known) = self.claims.get(claim.id) else { return Ok(None) };
                if known.until <= SystemClock.now() && !self.beat(&known.seat.lease).await? {
                    self.lease_is_over(&known.seat.lease);
                    return Ok(None);
                }
                let token = line.token(at).ok_or_else(unexpected)?;
                return self.grant_of(claim, Held { token, slot }).map(|grant| Some(Waited::Granted(grant)));
            }
            Some(Standing::Waits(blocker)) => self.listen(claim, blocker, listening).await?,
            Some(Standing::MayTake { .. }) => return Err(unexpected()),
        }
        Ok(None)
    }

    /// The usual case: an exclusive claim behind another one. `None` if a whole look is needed.
    ///
    /// It is asked what the very server knows that the watch is at. That may be behind the others, but not behind
    /// the watch: what it has told of must be there, and what it does later it will tell. And a claim that was
    /// there and first at any moment holds until its time is up, unless somebody ends it, who is told to its client.
    async fn short_turn(
        &self,
        claim: &Arc<Claim>,
        listening: &mut Option<Listening>,
    ) -> Result<Option<Option<Waited>>> {
        // Whoever was ahead when the claim came is mostly still there.
        if let Some(tail) = self.claims.take_ahead(claim.id) {
            self.listen_as_before(claim, Blocker::Key { tail, puts: false }, listening).await?;
            return Ok(Some(None));
        }
        let known = self.claims.get(claim.id);
        let (Some(heard), Some(known)) = (listening.as_mut(), known) else { return Ok(None) };
        let Some(created) = known.seat.created else { return Ok(None) };
        if claim.mode != Mode::Exclusive || claim.token_floor.is_some() || known.until <= SystemClock.now() {
            return Ok(None);
        }
        let (resource, told) = (self.layout.resource(&claim.resource), heard.ear.revision());
        let look = Txn::new().then_all(look_nearby(&resource, created));
        let answer = tokio::select! {
            biased;
            () = heard.until_passed_on(created) => None,
            answer = self.after_a_moment(heard, look) => Some(answer?),
        };
        let passed_on = heard.passed_on(created);
        if let Some(own) = &mut heard.own {
            // Also if that was heard too late.
            own.told = passed_on == Some(own.ear.last());
        }
        let Some(answer) = answer else {
            return self.held_alone(claim, created).map(|grant| Some(Some(grant)));
        };
        // What was told of may not be there to be read yet.
        if answer.header.as_ref().is_none_or(|header| header.revision < told) {
            return Ok(None);
        }
        let mut answers = Answers::of(answer);
        let (keys, floor) = (answers.range()?.kvs, answers.key()?);
        if floor.is_some() || keys.first().is_none_or(|own| own.create_revision != created) {
            return Ok(None);
        }
        match keys.get(1) {
            None => self.held_alone(claim, created).map(|grant| Some(Some(grant))),
            Some(ahead) => {
                let tail = String::from_utf8_lossy(&ahead.key[resource.locks.len()..]).into_owned();
                self.listen(claim, Blocker::Key { tail, puts: false }, listening).await?;
                Ok(Some(None))
            }
        }
    }

    /// The grant of an exclusive claim that came at `created` and is the first now.
    fn held_alone(&self, claim: &Claim, created: i64) -> Result<Waited> {
        let token = u64::try_from(created).ok().and_then(Token::new).ok_or_else(unexpected)?;
        self.grant_of(claim, Held { token, slot: None }).map(Waited::Granted)
    }

    /// Looks, unless the next to be told makes it needless: who leaves and passes it on is told of by two watches,
    /// one after the other, in any order.
    async fn after_a_moment(&self, heard: &Listening, look: Txn) -> Result<TxnResponse> {
        const TURNS: usize = 4;
        const MOMENT: Duration = Duration::from_millis(1);
        match &heard.own {
            // Whoever takes turns is passed on to each time. Who is not has lost this moment once.
            Some(own) if own.told => tokio::time::sleep(MOMENT).await,
            Some(_) => {
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
            }
            None => {}
        }
        self.link.txn_over(heard.number, look).await
    }

    /// Makes ready for a hand-over without a look, both ways: listens whether the own key is written, and finds out
    /// who came right after. Only for those who wait for a while, to whom that is no loss. Never completes.
    async fn settle_in(&self, claim: &Claim, number: u64, own: &mut Option<Own>) {
        // A queue of sixteen is through in eight milliseconds.
        const FIRST: Duration = Duration::from_millis(3);
        const LONGEST: Duration = Duration::from_secs(2);
        // Of those who take turns, the next comes when the one ahead of us has had its turn: who looks before that looks twice.
        let mut pause = (self.lingering.waited(&claim.resource) / 4).clamp(FIRST, LONGEST);
        while claim.mode == Mode::Exclusive && !self.is_settled(claim, own.as_ref()) {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            let Ok(_turn) = self.settling.acquire().await else { break };
            // What goes wrong here is noticed by who listens for whoever is ahead.
            if let Err(error) = self.make_ready(claim, number, own).await {
                tracing::debug!(%error, "who is behind is not known");
            }
        }
        std::future::pending::<()>().await;
    }

    /// Whether a claim that waits can be handed over to and hand over itself without a look, as far as is known.
    fn is_settled(&self, claim: &Claim, own: Option<&Own>) -> bool {
        let Some(known) = self.claims.get(claim.id) else { return true };
        own.is_some_and(|own| own.tail == known.seat.tail)
            && (self.claims.behind(claim.id).is_some()
                || self.lingering.next(&claim.resource, &known.seat.tail).is_some())
    }

    async fn make_ready(&self, claim: &Claim, number: u64, own: &mut Option<Own>) -> Result<()> {
        let Some(known) = self.claims.get(claim.id) else { return Ok(()) };
        let Some(created) = known.seat.created else { return Ok(()) };
        let resource = self.layout.resource(&claim.resource);
        let tail = known.seat.tail;
        if own.as_ref().is_none_or(|own| own.tail != tail) {
            let in_use = self.link.line().await?;
            let ear = in_use.line.watching.writes(resource.lock(&tail));
            *own = (in_use.number == number).then_some(Own { tail, ear, told: false });
        }
        if self.is_settled(claim, own.as_ref()) {
            return Ok(());
        }
        let answer = self.link.range_over(number, look_behind(&resource, created)).await?;
        if let Some(next) = passes_to(&resource, &answer) {
            self.claims.is_before(claim.id, next);
        }
        Ok(())
    }

    /// Keeps a watch for the next claim on the same resource.
    fn linger(&self, claim: &Claim, listening: Listening, waited: Duration) {
        if matches!(listening.blocker, Blocker::Key { puts: false, .. }) {
            self.lingering.keep(&claim.resource, listening, waited);
        }
    }

    /// Listens to whoever was ahead when the claim came: by the watch that was kept, if it is one of that key. It stood
    /// before the claim came: what happened since is heard.
    async fn listen_as_before(
        &self,
        claim: &Claim,
        blocker: Blocker,
        listening: &mut Option<Listening>,
    ) -> Result<()> {
        let created = self.claims.get(claim.id).and_then(|known| known.seat.created);
        let (Some(mut kept), Some(created)) = (self.lingering.take(&claim.resource), created) else {
            return self.listen(claim, blocker, listening).await;
        };
        let in_use = self.link.line().await?;
        if kept.number == in_use.number && kept.blocker == blocker && kept.ear.is_back(created) {
            *listening = Some(kept);
            return Ok(());
        }
        let own = kept.own.filter(|_| kept.number == in_use.number);
        *listening = Some(self.listen_anew(claim, blocker, in_use, own).await?);
        Ok(())
    }

    /// Listens to a blocker, unless that is done already.
    async fn listen(&self, claim: &Claim, blocker: Blocker, listening: &mut Option<Listening>) -> Result<()> {
        let in_use = self.link.line().await?;
        let same = |old: &Listening| old.number == in_use.number && old.blocker == blocker;
        if listening.as_ref().is_some_and(same) {
            return Ok(());
        }
        let own = listening.take().filter(|old| old.number == in_use.number).and_then(|old| old.own);
        *listening = Some(self.listen_anew(claim, blocker, in_use, own).await?);
        Ok(())
    }

    async fn listen_anew(
        &self,
        claim: &Claim,
        blocker: Blocker,
        in_use: InUse,
        own: Option<Own>,
    ) -> Result<Listening> {
        let resource = self.layout.resource(&claim.resource);
        let watching = &in_use.line.watching;
        let ear = match &blocker {
            Blocker::Key { tail, puts } => watching.key(resource.lock(tail), *puts),
            Blocker::Anyone => watching.under(&resource.locks),
        };
        let mut new = Listening { number: in_use.number, blocker, ear, own };
        new.ear.stands().await?;
        // As if something had happened: it must be looked once more.
        new.ear.look_again();
        Ok(new)
    }
}

/// The end of the key of whoever came right after, by the answer to [`look_behind`], if it can be passed on to them:
/// whoever shares is not alone in waiting for it.
pub(crate) fn passes_to(resource: &Resource, answer: &RangeResponse) -> Option<String> {
    let next = answer.kvs.first()?;
    let tail = String::from_utf8_lossy(&next.key[resource.locks.len()..]).into_owned();
    is_alone(&tail).then_some(tail)
}

/// Before the next try, where the last one failed.
const PAUSE: Duration = Duration::from_millis(20);
