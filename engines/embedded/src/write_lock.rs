use std::fs::File;
use std::path::Path;
use std::time::Duration;

use palisade_core::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::folder::{self, Folder};

/// The folder's write lock: one process at a time, and nobody overtakes for long.
///
/// A file lock alone wakes those who wait and then lets whoever comes first have it: one busy
/// process that tries again at once can keep all others out, whose renewals then come too late.
/// So who waits for the lock first takes the turn, and who only tries steps back while someone
/// has it.
#[derive(Debug)]
pub(crate) struct WriteLock {
    turn: File,
    lock: File,
}

impl WriteLock {
    const NAME: &str = "write.lock";

    pub(crate) fn open(folder: &Folder) -> Result<Self> {
        Ok(Self { turn: folder.lock_file("write.turn")?, lock: folder.lock_file(Self::NAME)? })
    }

    /// Takes the lock if it is free and nobody waits for it.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        // Shared, so that those who only try do not take each other for one who waits.
        flock(&self.turn, FlockOperation::NonBlockingLockShared).ok()?;
        let taken = flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        unlock(&self.turn);
        taken.then_some(Locked(&self.lock))
    }

    /// Waits for the lock in the kernel; `None` if that is not possible.
    pub(crate) fn lock(&self) -> Option<Locked<'_>> {
        if !lock_blocking(&self.turn) {
            return None;
        }
        let taken = lock_blocking(&self.lock);
        unlock(&self.turn);
        taken.then_some(Locked(&self.lock))
    }

    /// Waits for the lock, but not longer than `limit`.
    pub(crate) fn lock_within(&self, folder: &Folder, limit: Duration) -> Result<Locked<'_>> {
        folder::lock_within(&self.lock, &folder.path().join(Self::NAME), limit)?;
        Ok(Locked(&self.lock))
    }

    /// The error of one who waited in vain.
    pub(crate) fn is_held(&self, folder: &Path, limit: Duration) -> Error {
        folder::lock_is_held(&self.lock, &folder.join(Self::NAME), limit)
    }
}

/// The lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        unlock(self.0);
    }
}

/// Waits in the kernel for a file lock; returns whether it has it.
pub(crate) fn lock_blocking(file: &File) -> bool {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Ok(()) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn unlock(file: &File) {
    let _ = flock(file, FlockOperation::Unlock);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    #[test]
    fn one_who_waits_is_not_kept_out_by_one_who_tries_all_the_time() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let busy = WriteLock::open(&folder).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(locked) = busy.try_lock() {
                            let start = Instant::now();
                            while start.elapsed() < Duration::from_micros(200) {
                                std::hint::spin_loop();
                            }
                            drop(locked);
                        }
                    }
                });
            }
            let patient = WriteLock::open(&folder).unwrap();
            let start = Instant::now();
            for _ in 0..50 {
                drop(patient.lock().unwrap());
            }
            stop.store(true, Ordering::Relaxed);
            assert!(start.elapsed() < Duration::from_secs(20), "kept out for {:?}", start.elapsed());
        });
    }

    #[test]
    fn who_tries_steps_back_while_someone_waits() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let (holder, waiter, other) = (
            WriteLock::open(&folder).unwrap(),
            WriteLock::open(&folder).unwrap(),
            WriteLock::open(&folder).unwrap(),
        );
        let held = holder.try_lock().unwrap();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| drop(waiter.lock().unwrap()));
            while flock(&other.turn, FlockOperation::NonBlockingLockShared).is_ok() {
                unlock(&other.turn);
                std::thread::yield_now();
            }
            assert!(other.try_lock().is_none());
            drop(held);
            waiting.join().unwrap();
        });
        assert!(other.try_lock().is_some());
    }
}
