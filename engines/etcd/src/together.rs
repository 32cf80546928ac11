use std::sync::Arc;

use futures::future::join_all;
use palisade_core::{Departure, Effect, Gather, Gathered, Name, Result};
use prost::Message;

use crate::engine::Inner;
use crate::error::{closed, is_lease_gone, unexpected};
use crate::link::Answer;
use crate::proto::TxnResponse;
use crate::txn::{Answers, Txn};

/// Transactions that are sent in one, because they were to be sent at the same time: for the servers each is an entry of
/// their log, and many in one cost little more than one.
pub(crate) type Together = Gather<About, Result<Answer<TxnResponse>>>;

/// A transaction about one resource.
#[derive(Debug)]
pub(crate) struct About {
    resource: Name,
    txn: Txn,
}

/// How many go in one: etcd takes 128 parts in a transaction, counting those of one that is inside.
const AT_ONCE: usize = 40;

/// What is larger goes by itself: etcd takes requests of up to 1.5 MiB.
const SMALL: usize = 8 << 10;

impl Inner {
    /// Sends a transaction that needs nothing but its own resource, together with others while something is under way.
    pub(crate) async fn txn_soon(self: &Arc<Self>, resource: &Name, txn: Txn) -> Result<Answer<TxnResponse>> {
        let alone = self.together.alone();
        if alone.is_some() {
            return self.link.txn(txn).await;
        }
        self.txn_among(resource, txn).await
    }

    /// The same for one that has company for sure.
    pub(crate) async fn txn_among(
        self: &Arc<Self>,
        resource: &Name,
        txn: Txn,
    ) -> Result<Answer<TxnResponse>> {
        if txn.clone().request().encoded_len() > SMALL {
            return self.link.txn(txn).await;
        }
        let about = About { resource: resource.clone(), txn };
        let told = self.together.join(about, |departure| {
            // Not with a caller's own runtime, which may end before the others have their answers.
            self.runtime.spawn(send_gathered(Arc::clone(self), departure));
        });
        told.await.map_err(|_| closed().with_unknown_effect())?
    }

    async fn send_together(&self, gathered: Vec<Gathered<About, Result<Answer<TxnResponse>>>>) {
        let _under_way = self.together.depart();
        if gathered.len() > 1 {
            let all = Txn::new().then_all(gathered.iter().map(|one| one.question.txn.clone().nested()));
            match self.link.txn(all).await {
                Ok(answer) => return tell_all(gathered, answer),
                Err(error)
                    if error.effect() == Effect::Unknown
                        || (error.is_transient() && !is_lease_gone(&error)) =>
                {
                    return gathered.into_iter().for_each(|one| one.tell(Err(error.for_another())));
                }
                // It may be the fault of one, whose lease has ended, or who may not write what it wants to.
                Err(error) => tracing::debug!(%error, "what was sent together is sent one by one"),
            }
        }
        join_all(gathered.into_iter().map(|one| async {
            let answer = self.link.txn(one.question.txn.clone()).await;
            one.tell(answer);
        }))
        .await;
    }
}

async fn send_gathered(inner: Arc<Inner>, departure: Departure<About, Result<Answer<TxnResponse>>>) {
    let gathered = departure.leave().await;
    join_all(portions(gathered).into_iter().map(|some| inner.send_together(some))).await;
}

fn tell_all(gathered: Vec<Gathered<About, Result<Answer<TxnResponse>>>>, answer: Answer<TxnResponse>) {
    let Answer { value, sent, revision } = answer;
    let mut answers = Answers::of(value);
    for one in gathered {
        // No answer where there must be one says nothing about what was done.
        let own = answers.txn().map_err(|_| unexpected().with_unknown_effect());
        one.tell(own.map(|value| Answer { value, sent, revision }));
    }
}

/// What goes in one each, in the order in which it came. Of each resource it is one at most: etcd compares everything
/// before it does anything, so that two who want the same would both find it free.
fn portions<A>(gathered: Vec<Gathered<About, A>>) -> Vec<Vec<Gathered<About, A>>> {
    let mut portions: Vec<Vec<Gathered<About, A>>> = Vec::new();
    for one in gathered {
        let other = |there: &Gathered<About, A>| there.question.resource != one.question.resource;
        match portions.iter_mut().find(|some| some.len() < AT_ONCE && some.iter().all(other)) {
            Some(some) => some.push(one),
            None => portions.push(vec![one]),
        }
    }
    portions
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[tokio::test]
    async fn no_two_about_one_resource_go_together() {
        let gather = Gather::<About, usize>::default();
        let mut departures = Vec::new();
        let names = (0..AT_ONCE + 2).map(|number| format!("r{}", number.saturating_sub(1)));
        let told: Vec<_> = names
            .map(|name| {
                let about = About { resource: Name::new(&name).unwrap(), txn: Txn::new() };
                gather.join(about, |departure| departures.push(departure))
            })
            .collect();
        let portions = portions(departures.remove(0).leave().await);
        assert_eq!(portions.iter().map(Vec::len).collect::<Vec<_>>(), [AT_ONCE, 2]);
        for some in &portions {
            let about: HashSet<&Name> = some.iter().map(|one| &one.question.resource).collect();
            assert_eq!(about.len(), some.len(), "two about one resource");
        }
        assert_eq!(portions[1][0].question.resource.as_str(), "r0", "the second of its kind");
        drop(told);
    }
}
