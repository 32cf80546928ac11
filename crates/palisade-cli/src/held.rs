//! What `run` and `elect` hold, whichever recipe granted it.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use palisade::{
    BootInstant, Guard, Leadership, LostReason, ManyGuard, MutexGuard, Released, RwLockReadGuard,
    SemaphoreGuard,
};

/// The variable that names the claim to the command, and the command to its guardian.
pub(crate) const CLAIM_EXPORT: &str = "PALISADE_CLAIM";

/// One held claim, or several.
#[derive(Debug)]
pub(crate) enum Held {
    Mutex(MutexGuard),
    Shared(RwLockReadGuard),
    Slot(SemaphoreGuard),
    Many(ManyGuard),
    Leader(Leadership),
}

impl Held {
    pub(crate) fn guards(&self) -> Vec<&Guard> {
        match self {
            Self::Mutex(guard) => vec![guard],
            Self::Shared(guard) => vec![guard],
            Self::Slot(guard) => vec![guard],
            Self::Leader(guard) => vec![guard],
            Self::Many(guard) => guard.guards().iter().collect(),
        }
    }

    /// When the first of them ends without a renewal; never, on engines without deadlines.
    pub(crate) fn deadline(&self) -> BootInstant {
        self.guards().iter().filter_map(|guard| guard.deadline()).min().unwrap_or(BootInstant::FAR_FUTURE)
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.guards().iter().map(|guard| guard.ttl()).min().unwrap_or(Duration::MAX)
    }

    /// What to tell people when time runs out.
    pub(crate) fn why_not_renewed(&self) -> String {
        format!("it could not be renewed for too long{}", self.trouble())
    }

    /// Why the last renewal failed or is still under way, to follow other words; empty if neither.
    pub(crate) fn trouble(&self) -> String {
        let guards = self.guards();
        let failed = guards.iter().find_map(|guard| guard.trouble());
        let trouble = failed.or_else(|| guards.iter().find_map(|guard| guard.unanswered()));
        trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default()
    }

    /// Completes when the first of them is lost.
    pub(crate) fn lost(&self) -> BoxFuture<'static, LostReason> {
        match self {
            Self::Many(guard) => guard.lost().boxed(),
            Self::Mutex(guard) => guard.lost().boxed(),
            Self::Shared(guard) => guard.lost().boxed(),
            Self::Slot(guard) => guard.lost().boxed(),
            Self::Leader(guard) => guard.lost().boxed(),
        }
    }

    pub(crate) async fn release(self) -> palisade::Result<Released> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Slot(guard) => guard.release().await,
            Self::Leader(guard) => guard.release().await,
            Self::Many(guard) => guard.release().await,
        }
    }

    /// What the command is told, for the resource called `name` first of all.
    pub(crate) fn exports(&self, name: &str) -> Vec<(&'static str, String)> {
        let guards = self.guards();
        let Some(first) = guards.iter().find(|guard| guard.resource().as_str() == name) else {
            return Vec::new();
        };
        let mut exports = vec![
            ("PALISADE_RESOURCE", name.to_owned()),
            ("PALISADE_TOKEN", first.token().to_string()),
            (CLAIM_EXPORT, first.claim_id().to_string()),
        ];
        if let Self::Slot(guard) = self {
            exports.push(("PALISADE_SLOT", guard.slot().to_string()));
        }
        if let Self::Many(_) = self {
            // The token first: a name may hold any character but a line break.
            let lines: Vec<String> =
                guards.iter().map(|guard| format!("{} {}", guard.token(), guard.resource())).collect();
            exports.push(("PALISADE_TOKENS", lines.join("\n")));
        }
        exports
    }
}
