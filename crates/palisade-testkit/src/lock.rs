use std::ops::Deref;
use std::time::Duration;

use palisade::{
    Client, Guard, Mutex, MutexGuard, Released, Result, RwLock, RwLockWriteGuard, Semaphore, SemaphoreGuard,
};

use crate::Way;

/// One of the three recipes that hold a resource alone, behind one face.
#[derive(Debug, Clone)]
pub(crate) enum Lock {
    Mutex(Mutex),
    Write(RwLock),
    OneSlot(Semaphore),
}

/// What a [`Lock`] gives.
#[derive(Debug)]
pub(crate) enum LockGuard {
    Mutex(MutexGuard),
    Write(RwLockWriteGuard),
    OneSlot(SemaphoreGuard),
}

/// The same call on whichever recipe it is.
macro_rules! each {
    ($self:expr, $lock:ident => [$mutex:expr, $write:expr, $slot:expr]) => {
        match $self {
            Lock::Mutex($lock) => $mutex,
            Lock::Write($lock) => $write,
            Lock::OneSlot($lock) => $slot,
        }
    };
}

impl Lock {
    pub(crate) fn new(client: &Client, way: Way, name: &str) -> Result<Self> {
        Ok(match way {
            Way::Mutex => Self::Mutex(client.mutex(name)?),
            Way::Write => Self::Write(client.rw_lock(name)?),
            Way::OneSlot => Self::OneSlot(client.semaphore(name, 1)?),
        })
    }

    pub(crate) fn ttl(self, ttl: Duration) -> Self {
        each!(self, lock => [Self::Mutex(lock.ttl(ttl)), Self::Write(lock.ttl(ttl)), Self::OneSlot(lock.ttl(ttl))])
    }

    pub(crate) fn longest_hold(self, longest: Duration) -> Self {
        each!(self, lock => [
            Self::Mutex(lock.longest_hold(longest)),
            Self::Write(lock.longest_hold(longest)),
            Self::OneSlot(lock.longest_hold(longest))
        ])
    }

    pub(crate) async fn acquire(&self) -> Result<LockGuard> {
        Ok(each!(self, lock => [
            LockGuard::Mutex(lock.acquire().await?),
            LockGuard::Write(lock.write().await?),
            LockGuard::OneSlot(lock.acquire().await?)
        ]))
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        Ok(each!(self, lock => [
            lock.try_acquire().await?.map(LockGuard::Mutex),
            lock.try_write().await?.map(LockGuard::Write),
            lock.try_acquire().await?.map(LockGuard::OneSlot)
        ]))
    }

    pub(crate) async fn acquire_within(&self, limit: Duration) -> Result<Option<LockGuard>> {
        Ok(each!(self, lock => [
            lock.acquire_within(limit).await?.map(LockGuard::Mutex),
            lock.write_within(limit).await?.map(LockGuard::Write),
            lock.acquire_within(limit).await?.map(LockGuard::OneSlot)
        ]))
    }
}

impl LockGuard {
    pub(crate) async fn release(self) -> Result<Released> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::OneSlot(guard) => guard.release().await,
        }
    }
}

impl Deref for LockGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Write(guard) => guard,
            Self::OneSlot(guard) => guard,
        }
    }
}
