use std::collections::BTreeSet;

use palisade_core::{ClaimId, GoneReason};
use rusqlite::params;

use super::Ledger;
use crate::error::Step;
use crate::rows::sql;
use crate::session::SessionId;

impl Ledger<'_> {
    /// Removes all claims of sessions that are over, wherever they are, and lets the next in.
    ///
    /// The caller has seen that they are over, and a session never comes back; or it is the caller's
    /// own, which is being closed.
    pub(crate) fn reap(&mut self, dead: &[SessionId]) -> Step<()> {
        for session in dead {
            let mut touched = BTreeSet::new();
            let mut waited = Vec::new();
            {
                let mut select = self
                    .db
                    .prepare_cached("SELECT namespace, resource, seq, state FROM claim WHERE session = ?1")?;
                let mut rows = select.query([session.as_str()])?;
                while let Some(row) = rows.next()? {
                    let place: (String, String) = (row.get(0)?, row.get(1)?);
                    if row.get::<_, i64>(3)? == 0 {
                        waited.push((place.clone(), row.get::<_, i64>(2)?));
                    }
                    touched.insert(place);
                }
            }
            self.remove_all_of(*session)?;
            for ((namespace, resource), seq) in &waited {
                self.tell_successor(namespace, resource, *seq)?;
            }
            for (namespace, resource) in &touched {
                self.settle(namespace, resource, None)?;
            }
            self.after.dead.push(*session);
        }
        Ok(())
    }

    /// Removes claims that were let in but whose process is no more, though a child that inherited
    /// the session's descriptor keeps the session alive: nobody will ever use the grant.
    pub(crate) fn drop_unheard(&mut self, session: SessionId, id: ClaimId) -> Step<()> {
        let found = self
            .db
            .prepare_cached("SELECT namespace, resource FROM claim WHERE session = ?1 AND id = ?2")?
            .query_map(params![session.as_str(), id.as_bytes()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for (namespace, resource) in found {
            let front = self.settle(&namespace, &resource, Some(id))?;
            if let Some(line) = front.left {
                self.bury(&line, GoneReason::SessionLost)?;
            }
        }
        Ok(())
    }

    /// Those of `sessions` that are over, each once.
    pub(super) fn dead_among(&self, sessions: Vec<SessionId>) -> Vec<SessionId> {
        let mut asked = Vec::new();
        let mut dead = Vec::new();
        for session in sessions {
            if session == self.scene.session || asked.contains(&session) {
                continue;
            }
            asked.push(session);
            if self.scene.sessions.is_dead(session) {
                dead.push(session);
            }
        }
        dead
    }

    fn remove_all_of(&mut self, session: SessionId) -> Step<()> {
        const KEPT: u64 = 60_000_000_000;
        self.db
            .prepare_cached("INSERT OR REPLACE INTO gone SELECT id, 2, '', ?2 FROM claim WHERE session = ?1")?
            .execute(params![session.as_str(), sql(self.now + KEPT)])?;
        self.db.prepare_cached("DELETE FROM claim WHERE session = ?1")?.execute([session.as_str()])?;
        Ok(())
    }
}
