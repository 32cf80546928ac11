//! How rows are taken and freed: those of many tasks in one statement, which share a commit.

use std::sync::Arc;

use futures::future::join_all;
use palisade_core::{Claim, Departure, Error, Gathered, Result, Token};

use super::has_row;
use super::rows::{Known, Rows};
use super::table::{Table, Taken};
use crate::error::{closed, unexpected};
use crate::verbs::{TOGETHER, all};

/// How many rows go in one statement of several tasks.
const AT_ONCE: usize = 64;

impl Rows {
    /// Takes the row of a claim that is held, or takes in that it has it.
    ///
    /// Goes on if the future is dropped: whoever withdraws the claim waits until what was asked is answered.
    pub(super) async fn take(self: &Arc<Self>, claim: &Arc<Claim>, token: Token) -> Result<Taken> {
        let (rows, known) = (Arc::clone(self), self.enter(claim, token));
        tokio::spawn(async move { rows.take_soon(&known).await }).await.map_err(|_| closed())?
    }

    async fn take_soon(self: &Arc<Self>, known: &Arc<Known>) -> Result<Taken> {
        let _asking = known.asking.lock().await;
        if known.state.lock().leaves {
            return Ok(Taken::NotHeld);
        }
        if let Some(_alone) = self.taking.alone() {
            return self.take_one(known).await;
        }
        let told = self.taking.join(Arc::clone(known), |departure| {
            tokio::spawn(take_gathered(Arc::clone(self), departure));
        });
        told.await.map_err(|_| closed())?
    }

    async fn take_one(&self, known: &Arc<Known>) -> Result<Taken> {
        self.take_some(std::slice::from_ref(known)).await?.pop().ok_or_else(unexpected)
    }

    async fn take_some(&self, some: &[Arc<Known>]) -> Result<Vec<Taken>> {
        let claims: Vec<(&Claim, Token)> = some.iter().map(|known| (&*known.claim, known.token())).collect();
        let line = self.inner.link.line().await?;
        let taken = self.table.take(&line, &claims).await?;
        for (known, taken) in some.iter().zip(&taken) {
            match taken {
                Taken::Ours(sent) => known.is_ours(*sent),
                Taken::Others(_) => known.is_others(),
                Taken::NotHeld => {}
            }
        }
        Ok(taken)
    }

    async fn take_together(&self, gathered: Vec<Gathered<Arc<Known>, Result<Taken>>>) {
        let _under_way = self.taking.depart();
        let some: Vec<Arc<Known>> = gathered.iter().map(|one| Arc::clone(&one.question)).collect();
        if let Ok(taken) = self.take_some(&some).await {
            gathered.into_iter().zip(taken).for_each(|(one, taken)| one.tell(Ok(taken)));
            return;
        }
        // What stands in the way of one, such as a transaction that has its row, is not the others' business.
        let taken = join_all(some.iter().map(|known| self.take_one(known))).await;
        gathered.into_iter().zip(taken).for_each(|(one, taken)| one.tell(taken));
    }

    /// Frees the rows of claims that are to be withdrawn, whether this client knows of them or not.
    pub(super) async fn free(self: &Arc<Self>, claims: &[Arc<Claim>]) -> Result<()> {
        let claims: Vec<Arc<Claim>> =
            claims.iter().filter(|claim| has_row(&claim.resource)).map(Arc::clone).collect();
        for known in claims.iter().filter_map(|claim| self.known(claim.id)) {
            known.state.lock().leaves = true;
            // What is on its way may take the row yet.
            drop(known.asking.lock().await);
        }
        let freed = match claims.as_slice() {
            [claim] => self.free_soon(claim).await,
            claims => {
                let parts = claims
                    .chunks(TOGETHER)
                    .map(|some| async { self.free_some(some).await.map(|()| vec![()]) });
                all(parts.collect()).await.map(drop)
            }
        };
        match freed {
            Err(error) if error.is_transient() => Err(error),
            // The table is gone, or is not ours to write any more: rows end by themselves, and claims need not.
            Err(error) => {
                tracing::warn!(%error, "rows of ShedLock's table could not be freed");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn free_soon(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<()> {
        if let Some(_alone) = self.freeing.alone() {
            return self.free_some(std::slice::from_ref(claim)).await;
        }
        let told = self.freeing.join(Arc::clone(claim), |departure| {
            tokio::spawn(free_gathered(Arc::clone(self), departure));
        });
        told.await.map_err(|_| closed())?
    }

    async fn free_some(&self, some: &[Arc<Claim>]) -> Result<()> {
        let holds: Vec<_> = some.iter().map(|claim| Table::ending(&claim.resource, claim.id)).collect();
        let line = self.inner.link.line().await?;
        self.table.free(&line, &holds).await
    }

    async fn free_together(&self, gathered: Vec<Gathered<Arc<Claim>, Result<()>>>) {
        let _under_way = self.freeing.depart();
        let some: Vec<Arc<Claim>> = gathered.iter().map(|one| Arc::clone(&one.question)).collect();
        // Who withdraws asks again by itself.
        let freed = self.free_some(&some).await;
        for one in gathered {
            one.tell(freed.as_ref().copied().map_err(Error::for_another));
        }
    }
}

async fn take_gathered(rows: Arc<Rows>, departure: Departure<Arc<Known>, Result<Taken>>) {
    let portions = portions(departure.leave().await);
    join_all(portions.into_iter().map(|some| rows.take_together(some))).await;
}

async fn free_gathered(rows: Arc<Rows>, departure: Departure<Arc<Claim>, Result<()>>) {
    let portions = portions(departure.leave().await);
    join_all(portions.into_iter().map(|some| rows.free_together(some))).await;
}

/// What goes in one statement each.
fn portions<T>(mut gathered: Vec<T>) -> Vec<Vec<T>> {
    let mut portions = Vec::new();
    while !gathered.is_empty() {
        let rest = gathered.split_off(gathered.len().min(AT_ONCE));
        portions.push(std::mem::replace(&mut gathered, rest));
    }
    portions
}
