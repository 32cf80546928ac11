use palisade::{
    Client, Guard, Leadership, MutexGuard, Released, Result, RwLockReadGuard, RwLockWriteGuard,
    SemaphoreGuard,
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

/// Takes what the step wants, through the recipe that a program would use.
pub(super) async fn take(client: &Client, step: &Step) -> Result<Option<Held>> {
    let name = step.want.key(step.number);
    Ok(match step.want {
        Want::Mutex => {
            let mutex = client.mutex(&name)?;
            match step.patience {
                Patience::Once => mutex.try_acquire().await?,
                Patience::Within(limit) => mutex.acquire_within(limit).await?,
                Patience::Forever => Some(mutex.acquire().await?),
            }
            .map(Held::Mutex)
        }
        Want::Write => {
            let lock = client.rw_lock(&name)?;
            match step.patience {
                Patience::Once => lock.try_write().await?,
                Patience::Within(limit) => lock.write_within(limit).await?,
                Patience::Forever => Some(lock.write().await?),
            }
            .map(Held::Write)
        }
        Want::Read => {
            let lock = client.rw_lock(&name)?;
            match step.patience {
                Patience::Once => lock.try_read().await?,
                Patience::Within(limit) => lock.read_within(limit).await?,
                Patience::Forever => Some(lock.read().await?),
            }
            .map(Held::Read)
        }
        Want::Slot => {
            let semaphore = client.semaphore(&name, Want::SLOTS)?;
            match step.patience {
                Patience::Once => semaphore.try_acquire().await?,
                Patience::Within(limit) => semaphore.acquire_within(limit).await?,
                Patience::Forever => Some(semaphore.acquire().await?),
            }
            .map(Held::Slot)
        }
        Want::Lead => {
            let election = client.election(&name)?;
            match step.patience {
                Patience::Once => election.try_campaign(name).await?,
                Patience::Within(limit) => election.campaign_within(name, limit).await?,
                Patience::Forever => Some(election.campaign(name).await?),
            }
            .map(Held::Lead)
        }
    })
}
