//! The decisions: what one write transaction does to the claims.

mod claim;
mod leave;
mod notes;
mod reap;
mod verbs;

use palisade_core::{Admission, ClaimId, Clock, GoneReason, Occupancy, SystemClock, Token};
use rusqlite::{Connection, OptionalExtension, params};

pub(crate) use self::notes::Notes;
use crate::error::Step;
use crate::rows::{Line, line_columns, sql};
use crate::session::{SessionId, Sessions};
use crate::tokens::Numbers;
use crate::wake::{News, Wake};

/// Who decides, and from where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) session: SessionId,
    pub(crate) sessions: &'a Sessions,
    pub(crate) notes: &'a Notes,
}

/// What is left to do once a transaction is committed.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    /// Who must be told.
    pub(crate) wakes: Vec<Wake>,
    /// Sessions whose claims were removed because they are over; their files can go.
    pub(crate) dead: Vec<SessionId>,
}

/// One write transaction over the claims.
#[derive(Debug)]
pub(crate) struct Ledger<'a> {
    db: &'a Connection,
    numbers: Numbers<'a>,
    scene: &'a Scene<'a>,
    /// Read under the lock: decisions must be ordered as their times are, and what expired while
    /// the lock was waited for is never revived.
    now: u64,
    after: Aftermath,
}

/// The front of a resource's queue, settled: those inside, and the first who must wait.
#[derive(Debug, Default)]
struct Front {
    inside: Occupancy,
    holders: Vec<Line>,
    head: Option<Line>,
    /// The row that was asked to leave, if it lay this far in front.
    left: Option<Line>,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(db: &'a Connection, numbers: Numbers<'a>, scene: &'a Scene<'a>) -> Self {
        let now = SystemClock.now().as_nanos();
        Self { db, numbers, scene, now, after: Aftermath::default() }
    }

    /// Makes the numbers that were drawn known before the commit.
    pub(crate) fn finish(mut self) -> Step<Aftermath> {
        if let Some(ceiling) = self.numbers.keep()? {
            // A second net, should the number line's file be lost.
            self.db
                .prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE key = 'floor'")?
                .execute([sql(ceiling)])?;
        }
        Ok(self.after)
    }

    /// Brings the front of a queue in order: `leaving` goes, what has expired goes, and those whose
    /// turn it is come in. Reads no further than the first who must wait.
    fn settle(&mut self, namespace: &str, resource: &str, leaving: Option<ClaimId>) -> Step<Front> {
        let mut front = Front::default();
        let (mut expired, mut promoted) = (Vec::new(), Vec::new());
        {
            let mut select = self.db.prepare_cached(concat!(
                "SELECT ",
                line_columns!(),
                " FROM claim WHERE namespace = ?1 AND resource = ?2 ORDER BY seq"
            ))?;
            let mut rows = select.query([namespace, resource])?;
            while let Some(row) = rows.next()? {
                let line = Line::read(row)?;
                if line.expires <= self.now {
                    expired.push(line);
                } else if Some(line.id) == leaving {
                    front.left = Some(line);
                } else if line.held {
                    front.inside.enter(line.mode, line.slot);
                    front.holders.push(line);
                } else if let Some(admission) = front.inside.try_enter(line.mode) {
                    promoted.push((front.holders.len(), admission));
                    front.holders.push(line);
                } else {
                    front.head = Some(line);
                    break;
                }
            }
        }
        let waiter_left = expired.iter().chain(&front.left).any(|line| !line.held);
        if let Some(line) = &front.left {
            self.delete(namespace, resource, line.seq)?;
        }
        for line in &expired {
            self.delete(namespace, resource, line.seq)?;
            self.bury(line, GoneReason::Expired)?;
        }
        for (at, admission) in &promoted {
            self.admit(namespace, resource, &mut front.holders[*at], *admission)?;
        }
        self.tell_new_head(&front, !promoted.is_empty(), waiter_left);
        Ok(front)
    }

    /// Whoever moved up to the head of the queue must watch all holders now, not only the one
    /// before it; unless that one is the only holder. It is not if another waiter between them left.
    fn tell_new_head(&mut self, front: &Front, promoted: bool, waiter_left: bool) {
        let watches_them_already = promoted && !waiter_left && front.holders.len() == 1;
        if let Some(head) = &front.head
            && (promoted || waiter_left)
            && !watches_them_already
        {
            self.wake(head, News::Look);
        }
    }

    /// Lets one who waited come in. The token is drawn now: of two grants that exclude each other
    /// the later one's is greater. The end stays as the last renewal set it.
    fn admit(&mut self, namespace: &str, resource: &str, line: &mut Line, admission: Admission) -> Step<()> {
        let token = self.numbers.next(line.token)?;
        (line.held, line.token, line.slot) = (true, token.get(), admission.slot);
        self.db
            .prepare_cached(
                "UPDATE claim SET state = 1, token = ?4, slot = ?5, since_ns = ?6 WHERE namespace = ?1 AND resource = ?2 AND seq = ?3",
            )?
            .execute(params![namespace, resource, line.seq, sql(token.get()), line.slot, sql(self.now)])?;
        self.wake(line, News::Look);
        Ok(())
    }

    fn delete(&self, namespace: &str, resource: &str, seq: i64) -> Step<()> {
        self.db
            .prepare_cached("DELETE FROM claim WHERE namespace = ?1 AND resource = ?2 AND seq = ?3")?
            .execute(params![namespace, resource, seq])?;
        Ok(())
    }

    /// Remembers why a claim ended against its client's will, and tells the client.
    fn bury(&mut self, line: &Line, reason: GoneReason) -> Step<()> {
        const SHORTEST: u64 = 60_000_000_000;
        let (kind, text) = match &reason {
            GoneReason::Evicted { reason } => (1, reason.as_str()),
            GoneReason::SessionLost => (2, ""),
            _ => (0, ""),
        };
        let until = self.now + line.ttl.max(SHORTEST);
        self.db.prepare_cached("DELETE FROM gone WHERE until_ns <= ?1")?.execute([sql(self.now)])?;
        self.db.prepare_cached("INSERT OR REPLACE INTO gone VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            line.id.as_bytes(),
            kind,
            text,
            sql(until)
        ])?;
        let news = if line.held { News::Gone(reason) } else { News::Look };
        self.wake(line, news);
        Ok(())
    }

    fn why_gone(&self, id: ClaimId) -> Step<GoneReason> {
        Ok(why_gone(self.db, id)?)
    }

    /// Finds a claim wherever it stands in its queue, expired or not.
    fn find(&self, namespace: &str, resource: &str, id: ClaimId) -> Step<Option<Line>> {
        find(self.db, self.scene.notes, namespace, resource, id)
    }

    /// One who waited behind the front is gone: the next one must watch another now.
    fn tell_successor(&mut self, namespace: &str, resource: &str, seq: i64) -> Step<()> {
        let next = self
            .db
            .prepare_cached(concat!(
                "SELECT ",
                line_columns!(),
                " FROM claim WHERE namespace = ?1 AND resource = ?2 AND seq > ?3 ORDER BY seq LIMIT 1"
            ))?
            .query_row(params![namespace, resource, seq], Line::read)
            .optional()?;
        if let Some(line) = next.filter(|line| !line.held) {
            self.wake(&line, News::Look);
        }
        Ok(())
    }

    fn wake(&mut self, line: &Line, news: News) {
        self.after.wakes.push(Wake { session: line.session, claim: line.id, news });
    }
}

/// Finds a claim: by its number if this process made it, else by looking at all of the resource.
pub(crate) fn find(
    db: &Connection,
    notes: &Notes,
    namespace: &str,
    resource: &str,
    id: ClaimId,
) -> Step<Option<Line>> {
    if let Some(seq) = notes.seq(id) {
        let found = db
            .prepare_cached(concat!(
                "SELECT ",
                line_columns!(),
                " FROM claim WHERE namespace = ?1 AND resource = ?2 AND seq = ?3 AND id = ?4"
            ))?
            .query_row(params![namespace, resource, seq, id.as_bytes()], Line::read)
            .optional()?;
        // Numbers are never used twice, so that a row that is not there is nowhere.
        return Ok(found);
    }
    let found = db
        .prepare_cached(concat!(
            "SELECT ",
            line_columns!(),
            " FROM claim WHERE namespace = ?1 AND resource = ?2 AND id = ?3"
        ))?
        .query_row(params![namespace, resource, id.as_bytes()], Line::read)
        .optional()?;
    Ok(found)
}

/// Why a claim is no more, as far as it is remembered.
pub(crate) fn why_gone(db: &Connection, id: ClaimId) -> rusqlite::Result<GoneReason> {
    let found: Option<(i64, String)> = db
        .prepare_cached("SELECT kind, reason FROM gone WHERE id = ?1")?
        .query_row([id.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match found {
        None => GoneReason::Unknown,
        Some((1, reason)) => GoneReason::Evicted { reason },
        Some((2, _)) => GoneReason::SessionLost,
        Some(_) => GoneReason::Expired,
    })
}

fn floor(token: Option<Token>) -> u64 {
    token.map_or(0, Token::get)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palisade_core::{Claim, Claimed, Engine, Mode, Name, Owner, Ttl};

    use super::*;
    use crate::{EmbeddedConfig, EmbeddedEngine};

    #[tokio::test]
    async fn one_who_watched_a_waiter_that_left_is_told_although_only_one_came_in() {
        let folder = tempfile::tempdir().unwrap();
        let engine = EmbeddedEngine::open(EmbeddedConfig::new(folder.path())).await.unwrap();
        let (name, owner) = (Name::new("r").unwrap(), Arc::new(Owner::this_process()));
        let claims: Vec<_> = (0..4)
            .map(|_| Claim::new(name.clone(), Mode::Exclusive, Ttl::default(), Arc::clone(&owner)))
            .map(Arc::new)
            .collect();
        let [held, first, leaves, last] = &claims[..] else { panic!("four claims") };
        assert!(matches!(engine.claim(held).await.unwrap(), Claimed::Granted(_)));
        for claim in [first, leaves, last] {
            assert!(matches!(engine.claim(claim).await.unwrap(), Claimed::Queued(_)));
        }
        let expire_and_leave = |ledger: &mut Ledger<'_>| {
            ledger.db.execute("UPDATE claim SET expires_ns = 1 WHERE id = ?1", [held.id.as_bytes()])?;
            ledger.withdraw(&name, leaves.id)
        };
        let shared = &engine.shared;
        let (_, after) = shared.store.lock().transact(&shared.scene(), expire_and_leave).unwrap();
        let told: Vec<_> = after.wakes.iter().map(|wake| wake.claim).collect();
        assert!(told.contains(&first.id), "it came in");
        assert!(told.contains(&last.id), "it watches one who has left");
    }
}
