use std::ops::Deref;
use std::time::Duration;

use palisade::{
    Guard, Leadership, MutexGuard, Released, Result, RwLockReadGuard, RwLockWriteGuard, SemaphoreGuard,
};

use super::{SLOTS, Workload};
use crate::history::HoldMode;
use crate::verify::station::Station;

/// A guard of whichever recipe a workload is about.
#[derive(Debug)]
pub(super) enum Held {
    Mutex(MutexGuard),
    Reader(RwLockReadGuard),
    Writer(RwLockWriteGuard),
    Slot(SemaphoreGuard),
    Leader(Leadership),
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Reader(guard) => guard,
            Self::Writer(guard) => guard,
            Self::Slot(guard) => guard,
            Self::Leader(guard) => guard,
        }
    }
}

impl Held {
    /// Asks for `key` as `workload` does, for at most `limit`; without a limit it asks once.
    pub(super) async fn acquire(
        at: &Station,
        workload: Workload,
        key: &str,
        mode: HoldMode,
        limit: Option<Duration>,
    ) -> Result<Option<Self>> {
        let client = &at.client;
        Ok(match (workload, mode, limit) {
            (Workload::Election, _, None) => {
                client.election(key)?.try_campaign(at.name()).await?.map(Self::Leader)
            }
            (Workload::Election, _, Some(limit)) => {
                client.election(key)?.campaign_within(at.name(), limit).await?.map(Self::Leader)
            }
            (_, HoldMode::Slot(of), None) => client.semaphore(key, of)?.try_acquire().await?.map(Self::Slot),
            (_, HoldMode::Slot(of), Some(limit)) => {
                client.semaphore(key, of)?.acquire_within(limit).await?.map(Self::Slot)
            }
            (_, HoldMode::Shared, None) => client.rw_lock(key)?.try_read().await?.map(Self::Reader),
            (_, HoldMode::Shared, Some(limit)) => {
                client.rw_lock(key)?.read_within(limit).await?.map(Self::Reader)
            }
            (Workload::Rw, _, None) => client.rw_lock(key)?.try_write().await?.map(Self::Writer),
            (Workload::Rw, _, Some(limit)) => {
                client.rw_lock(key)?.write_within(limit).await?.map(Self::Writer)
            }
            (_, _, None) => client.mutex(key)?.try_acquire().await?.map(Self::Mutex),
            (_, _, Some(limit)) => client.mutex(key)?.acquire_within(limit).await?.map(Self::Mutex),
        })
    }

    /// Gives it back.
    pub(super) async fn release(self) -> Result<Released> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Reader(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Slot(guard) => guard.release().await,
            Self::Leader(guard) => guard.resign().await,
        }
    }

    /// The slot, for those that have one.
    pub(super) fn slot(&self) -> Option<u32> {
        match self {
            Self::Slot(guard) => Some(guard.slot()),
            _ => None,
        }
    }
}

impl Workload {
    /// In which mode the next round asks: every fourth reader writes.
    pub(super) fn mode(self, chance: u32) -> HoldMode {
        match self {
            Self::Semaphore => HoldMode::Slot(SLOTS),
            Self::Rw if !chance.is_multiple_of(4) => HoldMode::Shared,
            _ => HoldMode::Exclusive,
        }
    }
}
