use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use palisade_core::{ErrorKind, Result};
use parking_lot::Mutex;

use crate::error::error;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs what would block a caller, in the order in which it was asked.
///
/// Started with its first job. Nobody ever joins it: it may hang in a file lock that a stopped
/// process holds, and neither a drop nor the end of the program must wait for that.
#[derive(Debug)]
pub(crate) struct Worker {
    name: &'static str,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    /// Jobs that were asked for and are not done.
    open: Arc<AtomicUsize>,
}

impl Worker {
    /// More calls than this under way at once are a caller out of control.
    const LIMIT: usize = 65_536;

    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, jobs: Mutex::new(None), open: Arc::default() }
    }

    /// Whether everything asked for so far is done: then a caller may do its own work itself
    /// without overtaking anyone.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Runs `job` after all jobs before it.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        if self.open.fetch_add(1, Ordering::AcqRel) >= Self::LIMIT {
            self.open.fetch_sub(1, Ordering::AcqRel);
            let message = format!("{} calls are under way already", Self::LIMIT);
            return Err(error(ErrorKind::Unavailable, message));
        }
        let done = Done(Arc::clone(&self.open));
        let job: Job = Box::new(move || {
            let _done = done;
            // The caller learns of a panic through its channel; the thread must outlive it.
            let _ = catch_unwind(AssertUnwindSafe(job));
        });
        let mut jobs = self.jobs.lock();
        if jobs.is_none() {
            *jobs = Some(self.start()?);
        }
        let sent = jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(error(ErrorKind::Internal, "the worker thread has ended")) }
    }

    fn start(&self) -> Result<mpsc::Sender<Job>> {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || queue.into_iter().for_each(|job| job()))
            .map_err(|problem| error(ErrorKind::Unavailable, "cannot start a thread").because(problem))?;
        Ok(jobs)
    }
}

/// Counts a job as done when it is dropped, also unrun.
struct Done(Arc<AtomicUsize>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_order_and_a_panic_ends_only_its_own() {
        let worker = Worker::new("test");
        assert!(worker.is_idle());
        let (done, results) = mpsc::channel();
        for number in 0..100 {
            let done = done.clone();
            worker
                .submit(move || {
                    assert!(number != 7, "a panic on purpose");
                    done.send(number).unwrap();
                })
                .unwrap();
        }
        drop(done);
        let ran: Vec<_> = results.iter().collect();
        assert_eq!(ran, (0..100).filter(|number| *number != 7).collect::<Vec<_>>());
        while !worker.is_idle() {
            thread::yield_now();
        }
    }
}
