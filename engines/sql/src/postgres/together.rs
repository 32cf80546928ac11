//! Session locks that are taken or given back over one connection at the same time, in one statement: for the server many
//! in one are little more work than one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use palisade_core::{Departure, Effect, Gather, Gathered, Result, Traffic};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Row, Statement};

use super::seat::{Kind, Seat};
use crate::error::{closed, unexpected};

/// How many go in one statement.
const AT_ONCE: usize = 64;

/// How many statements are under way before others wait to go with more: the server does one after the other.
const UNDER_WAY: usize = 2;

/// How long they wait for that.
const PATIENCE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Together {
    attempts: [Gather<Asked, Result<Option<i64>>>; 2],
    leaves: [Gather<Asked, Result<bool>>; 2],
    keys: Arc<Keys>,
    /// The one in which the connection was made: a caller's own may end before the others have their answers.
    runtime: Handle,
}

impl Together {
    /// Inside the runtime of the connection.
    pub(super) fn new() -> Self {
        let traffic = Arc::<Traffic>::default();
        Self {
            attempts: [Gather::among(Arc::clone(&traffic)), Gather::among(Arc::clone(&traffic))],
            leaves: [Gather::among(Arc::clone(&traffic)), Gather::among(traffic)],
            keys: Arc::default(),
            runtime: Handle::current(),
        }
    }
}

/// The keys about which something is about to be sent, or is under way.
#[derive(Debug, Default)]
struct Keys {
    asked: Mutex<HashSet<i64>>,
    fewer: Notify,
}

/// A key about which nothing else is sent meanwhile. Without that, an attempt that nobody waits for any more might be sent
/// after the release that is to undo it.
#[derive(Debug)]
struct Asked {
    key: i64,
    keys: Arc<Keys>,
}

impl Asked {
    async fn about(keys: &Arc<Keys>, key: i64) -> Self {
        loop {
            let mut fewer = std::pin::pin!(keys.fewer.notified());
            fewer.as_mut().enable();
            if keys.asked.lock().insert(key) {
                return Self { key, keys: Arc::clone(keys) };
            }
            fewer.await;
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.keys.asked.lock().remove(&self.key);
        self.keys.fewer.notify_waiters();
    }
}

impl Seat {
    /// Takes a lock if it is free and nobody waits for it; its token.
    pub(crate) async fn attempt(self: &Arc<Self>, key: i64, shared: bool) -> Result<Option<i64>> {
        let kind = Kind::of(shared);
        let asked = Asked::about(&self.together.keys, key).await;
        let attempts = &self.together.attempts[kind as usize];
        if let Some(_alone) = attempts.alone() {
            let row = self.bounded(self.one(&self.statements.attempt[kind as usize], &[&key])).await?;
            return row.try_get(0).map_err(|error| unexpected().because(error));
        }
        let told = attempts.join(asked, |departure| {
            self.together.runtime.spawn(attempt_gathered(Arc::clone(self), kind, departure));
        });
        told.await.map_err(|_| closed())?
    }

    /// Gives a lock back. Returns whether it was held.
    pub(crate) async fn leave(self: &Arc<Self>, key: i64, shared: bool) -> Result<bool> {
        let kind = Kind::of(shared);
        let asked = Asked::about(&self.together.keys, key).await;
        let leaves = &self.together.leaves[kind as usize];
        if let Some(_alone) = leaves.alone() {
            let row = self.one(&self.statements.leave[kind as usize], &[&key]).await?;
            return row.try_get(0).map_err(|error| unexpected().because(error));
        }
        let told = leaves.join(asked, |departure| {
            self.together.runtime.spawn(leave_gathered(Arc::clone(self), kind, departure));
        });
        told.await.map_err(|_| closed())?
    }

    /// After the server refused several in one statement, perhaps for the sake of one: what it took before stays taken.
    async fn attempt_one_by_one(&self, kind: Kind, some: Vec<Gathered<Asked, Result<Option<i64>>>>) {
        let undone = self.bounded(self.about_each(&self.statements.leave_each[kind as usize], &some)).await;
        if let Err(error) = undone {
            return tell_each(some, Err(error));
        }
        for one in some {
            let key = one.question.key;
            let row = self.bounded(self.one(&self.statements.attempt[kind as usize], &[&key])).await;
            one.tell(row.and_then(|row| row.try_get(0).map_err(|error| unexpected().because(error))));
        }
    }

    /// The rows of a statement about several keys.
    async fn about_each<A>(&self, statement: &Statement, some: &[Gathered<Asked, A>]) -> Result<Vec<Row>> {
        let keys: Vec<i64> = some.iter().map(|one| one.question.key).collect();
        self.rows(statement, &[&keys]).await
    }
}

async fn attempt_gathered(seat: Arc<Seat>, kind: Kind, departure: Departure<Asked, Result<Option<i64>>>) {
    seat.together.attempts[kind as usize].until_below(UNDER_WAY, PATIENCE).await;
    let (seat, gathered) = (&*seat, departure.leave().await);
    join_all(portions(gathered).into_iter().map(|some| async move {
        let _under_way = seat.together.attempts[kind as usize].depart();
        let statement = &seat.statements.attempt_each[kind as usize];
        match seat.bounded(seat.about_each(statement, &some)).await {
            Err(error) if error.effect() == Effect::None && some.len() > 1 => {
                tracing::debug!(%error, "what was asked for together is asked for one by one");
                seat.attempt_one_by_one(kind, some).await;
            }
            rows => tell_each(some, rows),
        }
    }))
    .await;
}

async fn leave_gathered(seat: Arc<Seat>, kind: Kind, departure: Departure<Asked, Result<bool>>) {
    seat.together.leaves[kind as usize].until_below(UNDER_WAY, PATIENCE).await;
    let (seat, gathered) = (&*seat, departure.leave().await);
    join_all(portions(gathered).into_iter().map(|some| async move {
        let _under_way = seat.together.leaves[kind as usize].depart();
        let rows = seat.about_each(&seat.statements.leave_each[kind as usize], &some).await;
        tell_each(some, rows);
    }))
    .await;
}

fn portions<A>(mut gathered: Vec<Gathered<Asked, A>>) -> Vec<Vec<Gathered<Asked, A>>> {
    let mut portions = Vec::new();
    while gathered.len() > AT_ONCE {
        let rest = gathered.split_off(AT_ONCE);
        portions.push(std::mem::replace(&mut gathered, rest));
    }
    portions.push(gathered);
    portions.retain(|some| !some.is_empty());
    portions
}

/// Tells each what the row of its key says, behind the key.
fn tell_each<A: FromSqlOwned>(some: Vec<Gathered<Asked, Result<A>>>, rows: Result<Vec<Row>>) {
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return some.into_iter().for_each(|one| one.tell(Err(error.for_another()))),
    };
    let row = |row: Row| Some((row.try_get::<_, i64>(0).ok()?, row.try_get::<_, A>(1).ok()?));
    let mut answers: HashMap<i64, A> = rows.into_iter().filter_map(row).collect();
    for one in some {
        let answer = answers.remove(&one.question.key).ok_or_else(unexpected);
        one.tell(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_is_asked_about_a_key_waits_until_nothing_else_is() {
        let keys = Arc::<Keys>::default();
        let first = Asked::about(&keys, 7).await;
        let _other = Asked::about(&keys, 8).await;
        let mut second = std::pin::pin!(Asked::about(&keys, 7));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        let second = tokio::time::timeout(Duration::from_secs(5), second).await.unwrap();
        assert_eq!(second.key, 7);
        drop(second);
        assert_eq!(keys.asked.lock().len(), 1);
    }

    #[tokio::test]
    async fn what_is_not_wanted_any_more_leaves_its_key_to_others() {
        let together = Together::new();
        let alone = together.attempts[0].alone();
        let mut departures = Vec::new();
        let asked = Asked::about(&together.keys, 7).await;
        let told = together.attempts[0].join(asked, |departure| departures.push(departure));
        drop(told);
        assert!(portions(departures.remove(0).leave().await).is_empty());
        drop(alone);
        let again: std::pin::Pin<Box<dyn Future<Output = Asked>>> = Box::pin(Asked::about(&together.keys, 7));
        tokio::time::timeout(Duration::from_secs(5), again).await.unwrap();
    }
}
