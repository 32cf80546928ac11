use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use palisade_core::{Error, Result};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::folder::{self, Folder};

/// The folder's write lock: one process at a time, and nobody overtakes for long.
///
/// A file lock alone wakes those who wait and then lets whoever comes first have it: one busy
/// process that tries again at once can keep all others out, whose renewals then come too late.
/// So who waits for the lock first takes the turn, and who only tries steps back while someone
/// has it. The turn is a courtesy: who has it may be stopped, and must not hold up everyone, so
/// after a while the others go on without it.
#[derive(Debug)]
pub(crate) struct WriteLock {
    turn: File,
    lock: File,
    /// Since when the turn was refused each time. Kept across calls, so that a stopped process
    /// costs the others their patience once.
    refused: Mutex<Option<Instant>>,
}

impl WriteLock {
    const NAME: &str = "write.lock";
    const TURN: &str = "write.turn";
    /// Many times longer than who has the turn waits for the lock, unless the lock is stuck.
    const PATIENCE: Duration = Duration::from_millis(50);

    pub(crate) fn open(folder: &Folder) -> Result<Self> {
        let (turn, lock) = (folder.lock_file(Self::TURN)?, folder.lock_file(Self::NAME)?);
        Ok(Self { turn, lock, refused: Mutex::new(None) })
    }

    /// Takes the lock if it is free and nobody waits for it.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        // Shared, so that those who only try do not take each other for one who waits.
        let turn = self.try_turn(FlockOperation::NonBlockingLockShared)?;
        let taken = flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        drop(turn);
        taken.then_some(Locked(&self.lock))
    }

    /// Waits for the lock in the kernel; `None` if that is not possible.
    pub(crate) fn lock(&self) -> Option<Locked<'_>> {
        let turn = self.turn();
        let taken = lock_blocking(&self.lock);
        drop(turn);
        taken.then_some(Locked(&self.lock))
    }

    /// Waits for the turn, but not in the kernel, which knows no deadline.
    fn turn(&self) -> Turn<'_> {
        const NAP: Duration = Duration::from_micros(200);
        loop {
            if let Some(turn) = self.try_turn(FlockOperation::NonBlockingLockExclusive) {
                return turn;
            }
            std::thread::sleep(NAP);
        }
    }

    /// `None` if someone else has the turn and there is still patience for it.
    fn try_turn(&self, how: FlockOperation) -> Option<Turn<'_>> {
        let taken = flock(&self.turn, how).is_ok();
        let mut refused = self.refused.lock();
        if taken {
            *refused = None;
            return Some(Turn(Some(Locked(&self.turn))));
        }
        let since = refused.get_or_insert_with(Instant::now);
        (since.elapsed() >= Self::PATIENCE).then_some(Turn(None))
    }

    /// Waits for the lock, but not longer than `limit`.
    pub(crate) fn lock_within(&self, folder: &Folder, limit: Duration) -> Result<Locked<'_>> {
        folder::lock_within(&self.lock, &folder.path().join(Self::NAME), limit)?;
        Ok(Locked(&self.lock))
    }

    /// The error of one who waited in vain.
    pub(crate) fn is_held(&self, folder: &Path, limit: Duration) -> Error {
        let only_turn = folder::holder_of(&self.lock).is_none() && folder::holder_of(&self.turn).is_some();
        let (file, name) = if only_turn { (&self.turn, Self::TURN) } else { (&self.lock, Self::NAME) };
        folder::lock_is_held(file, &folder.join(name), limit)
    }
}

/// The turn, or the end of the patience for it.
struct Turn<'a>(#[expect(dead_code, reason = "kept until it is dropped")] Option<Locked<'a>>);

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

    #[test]
    fn one_who_is_stopped_while_it_waits_costs_the_others_little_and_only_once() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let (stopped, other) = (WriteLock::open(&folder).unwrap(), WriteLock::open(&folder).unwrap());
        flock(&stopped.turn, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(other.try_lock().is_none(), "it may only be slow");
        let limit = Duration::from_secs(1);
        assert!(other.is_held(home.path(), limit).to_string().contains("write.turn"));
        // In a thread, so that one who waits for ever fails the test and does not hang it.
        let (done, times) = std::sync::mpsc::channel();
        let calls = std::thread::spawn(move || {
            for _ in 0..1000 {
                let start = Instant::now();
                drop(other.lock().unwrap());
                drop(other.try_lock().unwrap());
                done.send(start.elapsed()).unwrap();
            }
            other
        });
        let took = || times.recv_timeout(Duration::from_secs(10)).expect("kept out by one who only waits");
        let took: Duration = (0..1000).map(|_| took()).sum();
        assert!(took < Duration::from_secs(5), "each call waited: {took:?}");
        // The courtesy is back as soon as the turn is.
        let other = calls.join().unwrap();
        unlock(&stopped.turn);
        drop(other.try_lock().unwrap());
        flock(&stopped.turn, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(other.try_lock().is_none());
    }
}
