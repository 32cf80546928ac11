use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use palisade_core::{BootInstant, Claim, Token};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::guard::LostReason;

/// A deadline that someone was told has passed.
const PASSED: u64 = 0;

/// No answer is late.
const NONE_LATE: u64 = 0;

/// What a guard and the keeper share about one held claim.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) token: Token,
    pub(crate) slot: Option<u32>,
    /// When the longest hold that was asked for is over.
    pub(crate) ends: BootInstant,
    claim: Mutex<Arc<Claim>>,
    /// On the boot-time clock, in nanoseconds; only ever raised, until it has [`PASSED`].
    deadline: AtomicU64,
    lost: OnceLock<LostReason>,
    told: Notify,
    /// Why the last renewal failed, if it did.
    trouble: Mutex<Option<Arc<str>>>,
    /// When the first of the renewals was sent whose answers are late, in nanoseconds, unless [`NONE_LATE`] is.
    unanswered_since: AtomicU64,
    /// Who took it, to notice a task that waits for itself.
    task: Mutex<Option<TaskKey>>,
}

impl Hold {
    pub(crate) fn new(
        claim: Arc<Claim>,
        token: Token,
        slot: Option<u32>,
        deadline: BootInstant,
        ends: BootInstant,
    ) -> Self {
        Self {
            token,
            slot,
            ends,
            claim: Mutex::new(claim),
            deadline: AtomicU64::new(deadline.as_nanos()),
            lost: OnceLock::new(),
            told: Notify::new(),
            trouble: Mutex::new(None),
            unanswered_since: AtomicU64::new(NONE_LATE),
            task: Mutex::new(Some(TaskKey::current())),
        }
    }

    pub(crate) fn claim(&self) -> Arc<Claim> {
        Arc::clone(&self.claim.lock())
    }

    pub(crate) fn set_claim(&self, claim: Arc<Claim>) {
        *self.claim.lock() = claim;
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        BootInstant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Raises the deadline, unless someone was told already that it has passed: then it never
    /// comes back. Returns whether it is in force.
    pub(crate) fn raise_deadline(&self, to: BootInstant) -> bool {
        self.deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| {
                (at != PASSED).then_some(at.max(to.as_nanos()))
            })
            .is_ok()
    }

    /// Whether the deadline lies ahead of `now`; if not, it is final.
    pub(crate) fn is_ahead_of(&self, now: BootInstant) -> bool {
        self.deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| (at <= now.as_nanos()).then_some(PASSED))
            .is_err()
    }

    pub(crate) fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.lock().clone()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<Arc<str>>) {
        *self.trouble.lock() = trouble;
    }

    /// When the first of the renewals was sent whose answers are late.
    pub(crate) fn unanswered_since(&self) -> Option<BootInstant> {
        let since = self.unanswered_since.load(Ordering::Acquire);
        (since != NONE_LATE).then(|| BootInstant::from_nanos(since))
    }

    /// The answer to a renewal that was sent then is late.
    pub(crate) fn unanswered(&self, sent: BootInstant) {
        let (order, order_if_later) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.unanswered_since.compare_exchange(NONE_LATE, sent.as_nanos(), order, order_if_later);
    }

    /// An answer came.
    pub(crate) fn answered(&self) {
        self.unanswered_since.store(NONE_LATE, Ordering::Release);
    }

    pub(crate) fn lost_reason(&self) -> Option<&LostReason> {
        self.lost.get()
    }

    /// Declares the claim lost. The first reason counts.
    pub(crate) fn lose(&self, reason: LostReason) {
        if self.lost.set(reason).is_ok() {
            let claim = self.claim();
            let reason = self.lost.get().map(ToString::to_string);
            let trouble = self.trouble();
            let trouble = trouble.as_deref();
            tracing::warn!(resource = %claim.resource, claim = %claim.id, token = %self.token, reason, trouble, "lost");
            self.told.notify_waiters();
        }
    }

    pub(crate) async fn wait_lost(&self) -> LostReason {
        loop {
            let told = self.told.notified();
            if let Some(reason) = self.lost.get() {
                return reason.clone();
            }
            told.await;
        }
    }

    pub(crate) fn is_of_this_task(&self) -> bool {
        *self.task.lock() == Some(TaskKey::current())
    }

    pub(crate) fn forget_task(&self) {
        *self.task.lock() = None;
    }
}

/// The task that runs, or the thread where no task does (the root of `block_on`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskKey {
    Task(tokio::task::Id),
    Thread(ThreadId),
}

impl TaskKey {
    fn current() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Thread(std::thread::current().id()), Self::Task)
    }
}
