use palisade_core::{Admission, BootInstant, Busy, Claim, Claimed, ErrorKind, Grant, Place, Token};
use rusqlite::{OptionalExtension, params};

use super::{Front, Ledger, floor};
use crate::error::{ENGINE, Step, error};
use crate::rows::{self, Line, family_column, mode_columns, sql, view_columns};
use crate::session::SessionId;

impl Ledger<'_> {
    /// Asks for a resource. `asked` is the moment before the locks were taken, from which the TTL
    /// counts.
    pub(crate) fn claim(&mut self, claim: &Claim, asked: u64) -> Step<Claimed> {
        let expires = asked.saturating_add(nanos(claim.ttl.as_duration()));
        if expires <= self.now {
            let message = "the folder's lock took longer to get than the claim may last; nothing was claimed";
            return Err(error(ErrorKind::Unavailable, message).about(&claim.resource).into());
        }
        let resource = claim.resource.as_str();
        let known = loop {
            let front = self.settle(self.scene.namespace, resource, None)?;
            let known = self.asked_before(claim, &front)?;
            match &known {
                Some(line) if line.held => break known,
                Some(_) => {}
                None => {
                    self.check_slots(claim, &front)?;
                    if front.head.is_none()
                        && let Some(admission) = front.inside.admit(claim.mode)
                    {
                        return self.grant(claim, asked, expires, admission);
                    }
                }
            }
            let dead = self.dead_ahead(claim, &front, known.is_some())?;
            if dead.is_empty() {
                break known;
            }
            self.reap(&dead)?;
        };
        match known {
            Some(line) => self.answer_again(claim, line),
            None if claim.will_wait => self.queue(claim, asked, expires),
            None => self.busy(resource),
        }
    }

    fn grant(&mut self, claim: &Claim, asked: u64, expires: u64, admission: Admission) -> Step<Claimed> {
        let token = self.numbers.next(floor(claim.token_floor))?;
        // An uncontended claim arrives and is granted with one number.
        let row = NewRow { seq: token, held: true, token: token.get(), slot: admission.slot, asked, expires };
        self.insert(claim, &row)?;
        let valid_until = BootInstant::from_nanos(expires);
        Ok(Claimed::Granted(Grant { token, slot: admission.slot, valid_until }))
    }

    fn queue(&mut self, claim: &Claim, asked: u64, expires: u64) -> Step<Claimed> {
        let ahead = self.waiting_before(claim, i64::MAX)?;
        let seq = self.numbers.next(0)?;
        let row = NewRow { seq, held: false, token: floor(claim.token_floor), slot: None, asked, expires };
        self.insert(claim, &row)?;
        Ok(Claimed::Queued(Place { ahead, valid_until: BootInstant::from_nanos(expires) }))
    }

    fn busy(&self, resource: &str) -> Step<Claimed> {
        let mut select = self.db.prepare_cached(concat!(
            "SELECT ",
            view_columns!(),
            " FROM claim WHERE namespace = ?1 AND resource = ?2 AND state = 1 ORDER BY seq"
        ))?;
        let holders = select
            .query_map([self.scene.namespace, resource], |row| rows::view(row, 0, self.now))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(Claimed::Busy(Busy { holders, look_again_in: None }))
    }

    fn asked_before(&self, claim: &Claim, front: &Front) -> Step<Option<Line>> {
        if let Some(line) = front.holders.iter().chain(&front.head).find(|line| line.id == claim.id) {
            return Ok(Some(line.clone()));
        }
        // Without a head the whole queue lies in front.
        if front.head.is_none() {
            return Ok(None);
        }
        let found = self.find(self.scene.namespace, claim.resource.as_str(), claim.id)?;
        Ok(found.filter(|line| line.expires > self.now))
    }

    /// The same answer as the first time; a greater token only if a floor now asks for one.
    fn answer_again(&mut self, claim: &Claim, mut line: Line) -> Step<Claimed> {
        self.scene.notes.remember(line.id, line.seq);
        if !line.held {
            let ahead = self.waiting_before(claim, line.seq)?;
            return Ok(Claimed::Queued(Place { ahead, valid_until: BootInstant::from_nanos(line.expires) }));
        }
        let floor = floor(claim.token_floor);
        if line.token <= floor {
            line.token = self.numbers.next(floor)?.get();
            self.db
                .prepare_cached(
                    "UPDATE claim SET token = ?4 WHERE namespace = ?1 AND resource = ?2 AND seq = ?3",
                )?
                .execute(params![self.scene.namespace, claim.resource.as_str(), line.seq, sql(line.token)])?;
        }
        let grant = line.grant().ok_or_else(|| error(ErrorKind::Corrupt, "a held claim has no token"))?;
        Ok(Claimed::Granted(grant))
    }

    fn waiting_before(&self, claim: &Claim, seq: i64) -> Step<u32> {
        let count = self
            .db
            .prepare_cached(
                "SELECT count(*) FROM claim WHERE namespace = ?1 AND resource = ?2 AND seq < ?3 AND state = 0 AND expires_ns > ?4",
            )?
            .query_row(
                params![self.scene.namespace, claim.resource.as_str(), seq, sql(self.now)],
                |row| row.get(0),
            )?;
        Ok(count)
    }

    fn check_slots(&self, claim: &Claim, front: &Front) -> Step<()> {
        if claim.mode.slots().is_none() {
            return Ok(());
        }
        let mut in_force = front.holders.iter().chain(&front.head).find_map(|line| line.mode.slots());
        if in_force.is_none() && front.head.is_some() {
            in_force = self
                .db
                .prepare_cached(
                    "SELECT slots FROM claim WHERE namespace = ?1 AND resource = ?2 AND mode = 2 AND expires_ns > ?3 LIMIT 1",
                )?
                .query_row(params![self.scene.namespace, claim.resource.as_str(), sql(self.now)], |row| {
                    row.get(0)
                })
                .optional()?;
        }
        claim
            .mode
            .check_slots(in_force)
            .map_err(|problem| problem.on_engine(ENGINE).about(&claim.resource).into())
    }

    /// Sessions in the way of a claim that are over.
    ///
    /// One who queues for the first time asks about the holders only, and only if nobody else
    /// waits who watches them. One who asks again may not be watching; one who will not wait never
    /// comes back to look, so it asks about the first waiters too.
    fn dead_ahead(&self, claim: &Claim, front: &Front, again: bool) -> Step<Vec<SessionId>> {
        const WAITERS: u32 = 16;
        let mut sessions: Vec<SessionId> = Vec::new();
        if front.head.is_none() || again || !claim.will_wait {
            sessions.extend(front.holders.iter().map(|line| line.session));
        }
        if front.head.is_some() && !claim.will_wait {
            let mut select = self.db.prepare_cached(
                "SELECT session FROM claim WHERE namespace = ?1 AND resource = ?2 AND state = 0 ORDER BY seq LIMIT ?3",
            )?;
            let mut waiting =
                select.query(params![self.scene.namespace, claim.resource.as_str(), WAITERS])?;
            while let Some(row) = waiting.next()? {
                sessions.push(rows::session_id(row, 0)?);
            }
        }
        Ok(self.dead_among(sessions))
    }

    fn insert(&mut self, claim: &Claim, row: &NewRow) -> Step<()> {
        let (mode, slots) = mode_columns(claim.mode);
        let owner = self.scene.notes.owner_text(&claim.owner);
        let seq = sql(row.seq.get());
        self.db
            .prepare_cached(
                "INSERT INTO claim VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            )?
            .execute(params![
                self.scene.namespace,
                claim.resource.as_str(),
                seq,
                claim.id.as_bytes(),
                self.scene.session.as_str(),
                family_column(claim.family),
                mode,
                slots,
                row.held,
                sql(row.token),
                row.slot,
                sql(nanos(claim.ttl.as_duration())),
                sql(row.expires),
                sql(self.now),
                sql(row.asked),
                &*owner,
                claim.value.as_deref(),
            ])?;
        self.scene.notes.remember(claim.id, seq);
        Ok(())
    }
}

/// What a new row holds beyond its claim.
struct NewRow {
    seq: Token,
    held: bool,
    token: u64,
    slot: Option<u32>,
    asked: u64,
    expires: u64,
}

pub(super) fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
