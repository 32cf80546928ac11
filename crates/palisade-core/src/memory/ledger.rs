use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::{
    Admission, BootInstant, Busy, Change, Changed, Claim, ClaimId, ClaimView, Claimed, Evicted, GoneReason,
    Grant, Inspection, Mode, ModeChange, Name, Occupancy, Page, Place, Renewed, ResourceView, Result,
    Selector, Signal, Signals, StoredRegister, Token, Waited, Withdrawn,
};

/// All claims and registers of one namespace. Every decision is one call under one lock.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By resource, in the order of arrival: first those who hold, then those who wait.
    resources: BTreeMap<Name, Vec<Row>>,
    pub(super) registers: BTreeMap<Name, StoredRegister>,
    last_token: u64,
    /// Why claims ended that did not end by their client's will, for one TTL.
    gone: HashMap<ClaimId, (GoneReason, BootInstant)>,
}

#[derive(Debug)]
struct Row {
    claim: Arc<Claim>,
    mode: Mode,
    value: Option<Bytes>,
    held: Option<Held>,
    since: BootInstant,
    expires: BootInstant,
    /// Woken when the row's state changes.
    turn: Arc<Notify>,
    signals: Signals,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    token: Token,
    slot: Option<u32>,
}

/// What a waiter does next.
pub(super) enum Turn {
    Over(Waited),
    /// Sleep until told, or until something ahead could have expired.
    Sleep(Arc<Notify>, BootInstant),
}

impl Ledger {
    /// An empty ledger whose tokens are greater than `last`.
    pub(super) fn counting_after(last: u64) -> Self {
        Self { last_token: last, ..Self::default() }
    }

    pub(super) fn claim(
        &mut self,
        claim: &Arc<Claim>,
        signals: &Signals,
        now: BootInstant,
    ) -> Result<Claimed> {
        self.purge(&claim.resource, now);
        let rows = self.resources.entry(claim.resource.clone()).or_default();
        if let Some(at) = rows.iter().position(|row| row.claim.id == claim.id) {
            if let (Some(held), Some(floor)) = (&mut rows[at].held, claim.token_floor)
                && held.token <= floor
            {
                self.last_token = self.last_token.max(floor.get()) + 1;
                held.token = token(self.last_token);
            }
            return Ok(answer(rows, at));
        }
        let in_force = rows.iter().find_map(|row| row.mode.slots());
        claim.mode.check_slots(in_force).map_err(|error| error.about(&claim.resource))?;
        let outcome = match admit(rows, claim.mode) {
            None if !claim.will_wait => {
                let holders = rows.iter().filter(|row| row.held.is_some()).map(|row| row.view(now)).collect();
                Claimed::Busy(Busy { holders, look_again_in: None })
            }
            admission => {
                let held = admission.map(|Admission { slot }| {
                    let floor = claim.token_floor.map_or(0, Token::get);
                    self.last_token = self.last_token.max(floor) + 1;
                    Held { token: token(self.last_token), slot }
                });
                rows.push(Row {
                    claim: Arc::clone(claim),
                    mode: claim.mode,
                    value: claim.value.clone(),
                    held,
                    since: now,
                    expires: now + claim.ttl.as_duration(),
                    turn: Arc::new(Notify::new()),
                    signals: signals.clone(),
                });
                answer(rows, rows.len() - 1)
            }
        };
        self.forget_if_free(&claim.resource);
        Ok(outcome)
    }

    pub(super) fn turn(&mut self, claim: &Claim, now: BootInstant) -> Turn {
        self.purge(&claim.resource, now);
        let rows = self.resources.get(&claim.resource).map_or(&[][..], Vec::as_slice);
        let Some(at) = rows.iter().position(|row| row.claim.id == claim.id) else {
            return Turn::Over(Waited::Gone(self.why_gone(claim.id)));
        };
        match rows[at].grant() {
            Some(grant) => Turn::Over(Waited::Granted(grant)),
            None => {
                let next = rows[..=at].iter().map(|row| row.expires).min().unwrap_or(BootInstant::FAR_FUTURE);
                Turn::Sleep(Arc::clone(&rows[at].turn), next)
            }
        }
    }

    pub(super) fn change(&mut self, claim: &Claim, change: &Change, now: BootInstant) -> Changed {
        self.purge(&claim.resource, now);
        let gone = self.why_gone(claim.id);
        let rows = self.resources.get_mut(&claim.resource).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(at) = rows.iter().position(|row| row.claim.id == claim.id) else {
            return Changed::Gone(gone);
        };
        match change {
            Change::Value(value) => rows[at].value.clone_from(value),
            Change::Mode(to) => match rows[at].mode.change_to(*to, rows[at].held.is_some()) {
                ModeChange::Same => {}
                ModeChange::Downgrade => rows[at].mode = Mode::Shared,
                ModeChange::Resize(of) => {
                    let slots = rows.iter_mut().filter(|row| row.mode.slots().is_some());
                    slots.for_each(|row| row.mode = Mode::Slot { of });
                }
                ModeChange::Refused(why) => return Changed::Refused(why.into()),
            },
        }
        self.promote(&claim.resource, now);
        Changed::Done
    }

    pub(super) fn renew(&mut self, claim: &Claim, now: BootInstant) -> Renewed {
        self.purge(&claim.resource, now);
        let rows = self.resources.get_mut(&claim.resource).map_or(&mut [][..], Vec::as_mut_slice);
        match rows.iter_mut().find(|row| row.claim.id == claim.id) {
            Some(row) => {
                row.expires = now + row.claim.ttl.as_duration();
                Renewed::Valid { until: row.expires }
            }
            None => Renewed::Gone(self.why_gone(claim.id)),
        }
    }

    pub(super) fn withdraw(&mut self, claim: &Claim, now: BootInstant) -> Withdrawn {
        self.purge(&claim.resource, now);
        match self.remove(&claim.resource, claim.id) {
            None => Withdrawn::AlreadyGone,
            Some(row) => {
                row.turn.notify_waiters();
                self.promote(&claim.resource, now);
                if row.held.is_some() { Withdrawn::Released } else { Withdrawn::LeftQueue }
            }
        }
    }

    pub(super) fn evict(
        &mut self,
        resource: &Name,
        claim: ClaimId,
        reason: &str,
        now: BootInstant,
    ) -> Evicted {
        self.purge(resource, now);
        match self.remove(resource, claim) {
            None => Evicted::NotFound,
            Some(row) => {
                self.bury(&row, GoneReason::Evicted { reason: reason.to_owned() }, now);
                self.promote(resource, now);
                Evicted::Done
            }
        }
    }

    pub(super) fn inspect(&mut self, selector: &Selector, page: &Page, now: BootInstant) -> Inspection {
        self.purge_all(now);
        let mut matching = self
            .resources
            .iter()
            .filter(|(name, _)| {
                selector.matches(name) && page.after.as_ref().is_none_or(|after| *name > after)
            })
            .map(|(name, rows)| view(name, rows, now));
        let resources: Vec<_> = matching.by_ref().take(page.limit).collect();
        let next = matching.next().and_then(|_| resources.last()).map(|last| last.resource.clone());
        Inspection { resources, next }
    }

    fn purge_all(&mut self, now: BootInstant) {
        let names: Vec<Name> = self.resources.keys().cloned().collect();
        for name in &names {
            self.purge(name, now);
        }
    }

    /// Ends what has expired and lets the next in.
    fn purge(&mut self, resource: &Name, now: BootInstant) {
        self.gone.retain(|_, (_, until)| *until > now);
        let Some(rows) = self.resources.get_mut(resource) else { return };
        let expired: Vec<Row> = rows.extract_if(.., |row| row.expires <= now).collect();
        if !expired.is_empty() {
            for row in &expired {
                self.bury(row, GoneReason::Expired, now);
            }
            self.promote(resource, now);
        }
    }

    fn promote(&mut self, resource: &Name, now: BootInstant) {
        let Some(rows) = self.resources.get_mut(resource) else { return };
        let mut inside = inside(rows);
        for row in rows.iter_mut().filter(|row| row.held.is_none()) {
            let Some(admission) = inside.try_enter(row.mode) else { break };
            let floor = row.claim.token_floor.map_or(0, Token::get);
            self.last_token = self.last_token.max(floor) + 1;
            row.held = Some(Held { token: token(self.last_token), slot: admission.slot });
            row.since = now;
            row.turn.notify_waiters();
        }
        self.forget_if_free(resource);
    }

    fn remove(&mut self, resource: &Name, claim: ClaimId) -> Option<Row> {
        let rows = self.resources.get_mut(resource)?;
        let at = rows.iter().position(|row| row.claim.id == claim)?;
        Some(rows.remove(at))
    }

    /// Remembers why a claim ended, and tells its client.
    fn bury(&mut self, row: &Row, reason: GoneReason, now: BootInstant) {
        self.gone.insert(
            row.claim.id,
            (reason.clone(), now + row.claim.ttl.as_duration().max(Duration::from_mins(1))),
        );
        row.turn.notify_waiters();
        if row.held.is_some() {
            row.signals.send(Signal::Gone { claim: row.claim.id, reason });
        }
    }

    fn why_gone(&self, claim: ClaimId) -> GoneReason {
        self.gone.get(&claim).map_or(GoneReason::Unknown, |(reason, _)| reason.clone())
    }

    fn forget_if_free(&mut self, resource: &Name) {
        if self.resources.get(resource).is_some_and(Vec::is_empty) {
            self.resources.remove(resource);
        }
    }
}

impl Row {
    fn grant(&self) -> Option<Grant> {
        self.held.map(|held| Grant { token: held.token, slot: held.slot, valid_until: self.expires })
    }

    fn view(&self, now: BootInstant) -> ClaimView {
        ClaimView {
            claim: self.claim.id,
            family: self.claim.family,
            mode: self.mode,
            slot: self.held.and_then(|held| held.slot),
            token: self.held.map(|held| held.token),
            owner: Arc::clone(&self.claim.owner),
            value: self.value.clone(),
            age: now.saturating_since(self.since),
            expires_in: Some(self.expires.saturating_since(now)),
        }
    }
}

fn answer(rows: &[Row], at: usize) -> Claimed {
    match rows[at].grant() {
        Some(grant) => Claimed::Granted(grant),
        None => {
            let ahead = rows[..at].iter().filter(|row| row.held.is_none()).count();
            Claimed::Queued(Place { ahead: ahead as u32, valid_until: rows[at].expires })
        }
    }
}

/// Whether a newcomer may come in at once: nobody waits, and those inside allow it.
fn admit(rows: &[Row], mode: Mode) -> Option<Admission> {
    if rows.iter().any(|row| row.held.is_none()) {
        return None;
    }
    inside(rows).admit(mode)
}

fn inside(rows: &[Row]) -> Occupancy {
    let mut inside = Occupancy::default();
    for row in rows {
        if let Some(held) = row.held {
            inside.enter(row.mode, held.slot);
        }
    }
    inside
}

fn view(name: &Name, rows: &[Row], now: BootInstant) -> ResourceView {
    let (holders, waiters): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.held.is_some());
    ResourceView {
        resource: name.clone(),
        holders: holders.into_iter().map(|row| row.view(now)).collect(),
        waiters: waiters.into_iter().map(|row| row.view(now)).collect(),
    }
}

fn token(number: u64) -> Token {
    Token::new(number).expect("2^63 grants in one process")
}
