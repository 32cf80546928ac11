use std::time::Duration;

use palisade::{
    Client, Election, Guard, Leadership, Mutex, MutexGuard, Released, Result, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Semaphore, SemaphoreGuard,
};

use super::plan::{Patience, Step, Want};

/// A guard of any recipe.
pub(super) enum Held {
    Mutex(MutexGuard),
    Write(RwLockWriteGuard),
    Read(RwLockReadGuard),
    Slot(SemaphoreGuard),
    Lead(Leadership),
}

impl Held {
    pub(super) fn guard(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Write(guard) => guard,
            Self::Read(guard) => guard,
            Self::Slot(guard) => guard,
            Self::Lead(guard) => guard,
        }
    }

    pub(super) fn slot(&self) -> Option<u32> {
        match self {
            Self::Slot(guard) => Some(guard.slot()),
            _ => None,
        }
    }

    pub(super) async fn release(self) -> Result<Released> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Slot(guard) => guard.release().await,
            Self::Lead(guard) => guard.resign().await,
        }
    }
}

/// A recipe whose guards can be told how long they may live at most.
trait Limited: Sized {
    fn longest(self, longest: Duration) -> Self;
}

macro_rules! limited {
    ($($recipe:ident)*) => {
        $(impl Limited for $recipe {
            fn longest(self, longest: Duration) -> Self {
                self.longest_hold(longest)
            }
        })*
    };
}
limited!(Mutex RwLock Semaphore Election);

fn limited<R: Limited>(recipe: R, step: &Step) -> R {
    match step.longest_hold {
        Some(longest) => recipe.longest(longest),
        None => recipe,
    }
}

/// Takes what the step wants, through the recipe that a program would use.
pub(super) async fn take(client: &Client, step: &Step) -> Result<Option<Held>> {
    let name = step.want.key(step.number);
    Ok(match step.want {
        Want::Mutex => {
            let mutex = limited(client.mutex(&name)?, step);
            match step.patience {
                Patience::Once => mutex.try_acquire().await?,
                Patience::Within(limit) => mutex.acquire_within(limit).await?,
                Patience::Forever => Some(mutex.acquire().await?),
            }
            .map(Held::Mutex)
        }
        Want::Write => {
            let lock = limited(client.rw_lock(&name)?, step);
            match step.patience {
                Patience::Once => lock.try_write().await?,
                Patience::Within(limit) => lock.write_within(limit).await?,
                Patience::Forever => Some(lock.write().await?),
            }
            .map(Held::Write)
        }
        Want::Read => {
            let lock = limited(client.rw_lock(&name)?, step);
            match step.patience {
                Patience::Once => lock.try_read().await?,
                Patience::Within(limit) => lock.read_within(limit).await?,
                Patience::Forever => Some(lock.read().await?),
            }
            .map(Held::Read)
        }
        Want::Slot => {
            let semaphore = limited(client.semaphore(&name, Want::SLOTS)?, step);
            match step.patience {
                Patience::Once => semaphore.try_acquire().await?,
                Patience::Within(limit) => semaphore.acquire_within(limit).await?,
                Patience::Forever => Some(semaphore.acquire().await?),
            }
            .map(Held::Slot)
        }
        Want::Lead => {
            let election = limited(client.election(&name)?, step);
            match step.patience {
                Patience::Once => election.try_campaign(name).await?,
                Patience::Within(limit) => election.campaign_within(name, limit).await?,
                Patience::Forever => Some(election.campaign(name).await?),
            }
            .map(Held::Lead)
        }
    })
}
