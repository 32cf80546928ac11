use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the watch sleeps.
const NAP: Duration = Duration::from_millis(10);

/// The times at which this machine let a thread that sleeps for ten milliseconds sleep for much longer: it was paused
/// by its host, or had more to do than it can. What a test with a time limit says then, it says of the machine.
#[derive(Debug)]
pub(crate) struct Stalls {
    seen: Arc<Mutex<Vec<Stall>>>,
    /// Hangs up to end the watch.
    _end: Sender<()>,
}

#[derive(Debug, Clone, Copy)]
struct Stall {
    began: Instant,
    lasted: Duration,
}

impl Stalls {
    /// Notes what lasts for longer than `worth_noting` until it is dropped.
    pub(crate) fn watch(worth_noting: Duration) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = mpsc::channel::<()>();
        let notes = Arc::clone(&seen);
        thread::spawn(move || {
            let mut began = Instant::now();
            while ended.recv_timeout(NAP) == Err(RecvTimeoutError::Timeout) {
                let lasted = began.elapsed();
                if lasted > worth_noting {
                    notes.lock().unwrap_or_else(PoisonError::into_inner).push(Stall { began, lasted });
                }
                began = Instant::now();
            }
        });
        Self { seen, _end: end }
    }

    /// The longest since `from`, if there was one.
    pub(crate) fn longest_since(&self, from: Instant) -> Option<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|stall| stall.began + stall.lasted >= from).map(|stall| stall.lasted).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_noted_and_what_is_over_is_not_told() {
        // Every nap lasts for longer than nothing.
        let stalls = Stalls::watch(Duration::ZERO);
        let began = Instant::now();
        while stalls.longest_since(began).is_none() {
            assert!(began.elapsed() < Duration::from_secs(10));
            thread::yield_now();
        }
        assert!(stalls.longest_since(Instant::now() + Duration::from_mins(1)).is_none());
    }
}
