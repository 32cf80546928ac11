use std::collections::HashMap;
use std::sync::Arc;

use palisade_core::{ClaimId, Owner};
use parking_lot::Mutex;

/// What a process remembers to spare the database a search. Losing it costs time only.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Where this process's claims stand in their queues.
    seqs: Mutex<HashMap<ClaimId, i64>>,
    /// The last owner as text: a client is the same for all its claims.
    owner: Mutex<Option<(Arc<Owner>, Arc<str>)>>,
}

impl Notes {
    pub(crate) fn seq(&self, id: ClaimId) -> Option<i64> {
        self.seqs.lock().get(&id).copied()
    }

    pub(crate) fn remember(&self, id: ClaimId, seq: i64) {
        self.seqs.lock().insert(id, seq);
    }

    /// Forgets a claim; whether it was known.
    pub(crate) fn forget(&self, id: ClaimId) -> bool {
        self.seqs.lock().remove(&id).is_some()
    }

    /// All claims of this process that may still be there.
    pub(crate) fn all(&self) -> Vec<ClaimId> {
        self.seqs.lock().keys().copied().collect()
    }

    /// Whether this process has no claim that it knows of.
    pub(crate) fn is_empty(&self) -> bool {
        self.seqs.lock().is_empty()
    }

    pub(crate) fn owner_text(&self, owner: &Arc<Owner>) -> Arc<str> {
        let mut last = self.owner.lock();
        match &*last {
            Some((known, text)) if Arc::ptr_eq(known, owner) => Arc::clone(text),
            _ => {
                // A struct of strings and a number always has a JSON form.
                let text: Arc<str> = serde_json::to_string(&**owner).unwrap_or_default().into();
                *last = Some((Arc::clone(owner), Arc::clone(&text)));
                text
            }
        }
    }
}
