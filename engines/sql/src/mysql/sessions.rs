//! What is noted of session locks, and who has them.

use std::collections::BTreeSet;

use mysql_async::{Row, Value};
use palisade_core::{ClaimId, Error, ErrorKind, Result};
use serde_json::json;

use super::arrival::number;
use super::error::failed;
use super::line::{Line, PROCESSES};
use super::server::{hex, text};
use crate::advisory::{Note, Seen};
use crate::error::unexpected;

impl Line {
    /// Forgets what was noted of some claims, and notes others.
    pub(crate) async fn note(&self, namespace: &str, gone: &[ClaimId], notes: &[Note]) -> Result<()> {
        /// The server looks each of them up in the whole.
        const AT_ONCE: usize = 50;
        let mut gone = json!(gone.iter().map(|id| hex(id.as_bytes())).collect::<Vec<_>>());
        let mut notes = notes.chunks(AT_ONCE).peekable();
        loop {
            let some: Vec<_> = notes.next().unwrap_or_default().iter().map(noted).collect();
            let bound: Vec<Value> =
                vec![namespace.into(), gone.to_string().into(), json!(some).to_string().into()];
            self.call("CALL palisade_note(?, ?, ?)", bound).await?;
            gone = json!([]);
            if notes.peek().is_none() {
                return Ok(());
            }
        }
    }

    /// Who has a lock and who waits for it; all that is noted in the namespace if there is no key.
    ///
    /// Only of one lock does the server say who has it. Who that is, if it is not noted yet, is a connection of ours whose
    /// note is on its way, as far as is known: its name begins with `seats`.
    pub(crate) async fn sessions(
        &self,
        namespace: &str,
        key: Option<i64>,
        seats: &str,
        locks: &str,
    ) -> Result<Vec<Seen>> {
        let bound = vec![namespace.into(), key.map_or(Value::NULL, Value::from), locks.into()];
        let (rows, _) = self.call("CALL palisade_sessions(?, ?, ?)", bound).await?;
        let mut all: Vec<(i64, Seen)> = rows.iter().filter_map(seen).collect();
        // Those who hold come first, then those who wait, in their order.
        all.sort_by_key(|(since, seen)| (seen.key, !seen.granted, *since));
        let mut all: Vec<Seen> = all.into_iter().map(|(_, seen)| seen).collect();
        let holder = rows.first().ok_or_else(unexpected).map(|row| number(row, 0))?;
        if let Some((pid, key)) = holder.zip(key)
            && !all.iter().any(|seen| seen.granted)
        {
            let seat = seats.to_owned();
            all.insert(0, Seen { pid, seat, key, granted: true, exclusive: true, noted: None });
        }
        Ok(all)
    }

    /// The sessions that have a lock, or are noted to wait for it; those of this user only if they are seen to wait.
    pub(crate) async fn in_line(&self, namespace: &str, key: i64, locks: &str) -> Result<Vec<(i64, bool)>> {
        // Before and after: who begins to wait in between, or is let in, is missing in one of both only.
        let before = self.at_locks().await?;
        let seen = self.sessions(namespace, Some(key), "", locks).await?;
        let mut line: Vec<(i64, bool)> = seen.iter().map(|seen| (seen.pid, seen.granted)).collect();
        if line.iter().any(|(pid, granted)| !granted && before.is_elsewhere(*pid)) {
            let after = self.at_locks().await?;
            line.retain(|(pid, granted)| *granted || !before.is_elsewhere(*pid) || !after.is_elsewhere(*pid));
        }
        Ok(line)
    }

    /// What the sessions do that this user may see.
    async fn at_locks(&self) -> Result<AtLocks> {
        const STATE: usize = 6;
        let rows = self.text(PROCESSES).await?.map_err(failed)?;
        let mut at_locks = AtLocks::default();
        for row in &rows {
            let id = number(row, 0).ok_or_else(unexpected)?;
            if text(row, STATE).is_some_and(|state| state == "User lock") {
                at_locks.waiting.insert(id)
            } else {
                at_locks.elsewhere.insert(id)
            };
        }
        Ok(at_locks)
    }

    /// Forgets what was noted by connections that are gone.
    pub(crate) async fn sweep_sessions(&self) -> Result<()> {
        self.call("CALL palisade_sweep_sessions()", Vec::new()).await.map(drop)
    }

    /// Refuses a cluster each of whose nodes has locks of its own, and what stands before a server and has numbers of its
    /// own for sessions. Says what to use `instead`.
    pub(crate) async fn refuse_sharers(&self, instead: &str) -> Result<()> {
        let nodes = self.text("SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'").await?.map_err(failed)?;
        if nodes.first().and_then(|row| number(row, 1)).is_some_and(|nodes| nodes > 0) {
            let message = format!(
                "the server is a node of a Galera cluster, each of which has session locks of its own; use {instead}"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let group = "SHOW GLOBAL VARIABLES LIKE 'group_replication_single_primary_mode'";
        let group = self.text(group).await?.map_err(failed)?;
        if group.first().and_then(|row| text(row, 1)).is_some_and(|single| single == "OFF") {
            let message = format!(
                "the server is one of a group that may all be written to, each of which has session locks of its own; use {instead}"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }
}

/// Sessions, by whether they wait for a lock.
#[derive(Debug, Default)]
struct AtLocks {
    waiting: BTreeSet<i64>,
    elsewhere: BTreeSet<i64>,
}

impl AtLocks {
    fn is_elsewhere(&self, session: i64) -> bool {
        self.elsewhere.contains(&session)
    }
}

fn noted(note: &Note) -> serde_json::Value {
    json!([
        hex(note.id.as_bytes()),
        note.seat,
        note.key,
        hex(note.resource.as_str().as_bytes()),
        note.family,
        note.token,
        note.age,
        i32::from(note.value.is_some()),
        hex(note.owner.as_bytes()),
        hex(note.value.as_deref().unwrap_or_default()),
    ])
}

/// What is noted by a session that lives, and since when; unless it had the lock and has it no more.
fn seen(row: &Row) -> Option<(i64, Seen)> {
    #[derive(serde::Deserialize)]
    struct Held {
        token: Option<i64>,
    }
    let pid = number(row, 1)?;
    let granted = number(row, 4) == Some(1);
    let claim = text(row, 7)?;
    let held = serde_json::from_str::<Held>(&claim).ok()?.token.is_some();
    if held && !granted {
        return None;
    }
    let noted = Some((text(row, 6)?, claim));
    let (seat, key, since) = (text(row, 2)?, number(row, 3)?, number(row, 5)?);
    Some((since, Seen { pid, seat, key, granted, exclusive: true, noted }))
}
