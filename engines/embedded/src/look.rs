//! What is read without the write lock: a snapshot of the claims.

use std::ops::ControlFlow;

use palisade_core::{
    BootInstant, Claim, GoneReason, Grant, Inspection, Matching, Name, Page, ResourceView, Selector,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Step, error};
use crate::ledger::{self, Notes};
use crate::rows::{self, Line, line_columns, view_columns};
use crate::session::SessionId;

/// What one who waits finds when it looks.
#[derive(Debug)]
pub(crate) enum Turn {
    Granted(Grant),
    Gone(GoneReason),
    /// Something ahead, or the claim itself, has expired: someone must settle the queue.
    Settle,
    /// Sleep until told, until one of these sessions ends, or until something ahead could expire.
    Sleep {
        sessions: Vec<SessionId>,
        until: BootInstant,
    },
}

/// Looks whose turn it is.
///
/// The first in line watches everyone inside; everyone else watches only the one before it. So a
/// death wakes one process, and a look costs two rows however long the queue is.
pub(crate) fn turn(db: &Connection, notes: &Notes, namespace: &str, claim: &Claim, now: u64) -> Step<Turn> {
    let resource = claim.resource.as_str();
    let Some(own) = ledger::find(db, notes, namespace, resource, claim.id)? else {
        notes.forget(claim.id);
        return Ok(Turn::Gone(ledger::why_gone(db, claim.id)?));
    };
    notes.remember(own.id, own.seq);
    if own.expires <= now {
        return Ok(Turn::Settle);
    }
    if let Some(grant) = own.grant() {
        return Ok(Turn::Granted(grant));
    }
    let ahead = ahead_of(db, namespace, resource, own.seq)?;
    // Of those inside, one further back watches only the oldest's clock: the one before it may be
    // queued without anybody waiting for it, and so watch nobody.
    let oldest = if ahead.iter().any(|line| line.held) { None } else { first(db, namespace, resource)? };
    let until = ahead.iter().chain([&own]).chain(&oldest).map(|line| line.expires).min().unwrap_or(0);
    // Nobody ahead of one who waits: it came in after this snapshot, or never was let in.
    if ahead.is_empty() || until <= now {
        return Ok(Turn::Settle);
    }
    let mut sessions: Vec<SessionId> = Vec::new();
    for line in ahead {
        if !sessions.contains(&line.session) {
            sessions.push(line.session);
        }
    }
    Ok(Turn::Sleep { sessions, until: BootInstant::from_nanos(until) })
}

fn first(db: &Connection, namespace: &str, resource: &str) -> Step<Option<Line>> {
    let found = db
        .prepare_cached(concat!(
            "SELECT ",
            line_columns!(),
            " FROM claim WHERE namespace = ?1 AND resource = ?2 ORDER BY seq LIMIT 1"
        ))?
        .query_row([namespace, resource], Line::read)
        .optional()?;
    Ok(found)
}

/// The one before `seq` if it waits, else all who are inside.
fn ahead_of(db: &Connection, namespace: &str, resource: &str, seq: i64) -> Step<Vec<Line>> {
    let mut select = db.prepare_cached(concat!(
        "SELECT ",
        line_columns!(),
        " FROM claim WHERE namespace = ?1 AND resource = ?2 AND seq < ?3 ORDER BY seq DESC"
    ))?;
    let mut rows = select.query(params![namespace, resource, seq])?;
    let mut ahead = Vec::new();
    while let Some(row) = rows.next()? {
        let line = Line::read(row)?;
        let waits = !line.held;
        ahead.push(line);
        if waits {
            break;
        }
    }
    Ok(ahead)
}

/// What an inspection saw, and what it must not show.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) inspection: Inspection,
    /// Resources with claims past their TTL: to be settled before they are shown.
    pub(crate) stale: Vec<String>,
    /// When the first of the claims shown expires.
    pub(crate) next_expiry: Option<u64>,
}

pub(crate) fn inspect(
    db: &Connection,
    namespace: &str,
    selector: &Selector,
    page: &Page,
    now: u64,
) -> Step<Seen> {
    let prefix = match &selector.matching {
        Matching::Exact(name) => name.as_str(),
        Matching::Prefix(prefix) => prefix.as_str(),
    };
    // One bound only, so that a page costs as much as it shows.
    let (comparison, from) = match &page.after {
        Some(after) if after.as_str() >= prefix => (">", after.as_str()),
        _ => (">=", prefix),
    };
    let mut select = db.prepare_cached(&format!(
        "SELECT resource, {}, expires_ns FROM claim WHERE namespace = ?1 AND resource {comparison} ?2 ORDER BY resource, seq",
        view_columns!()
    ))?;
    let mut rows = select.query([namespace, from])?;
    let mut seen = Seen::default();
    while let Some(row) = rows.next()? {
        if see(&mut seen, row, selector, page, now)?.is_break() {
            break;
        }
    }
    Ok(seen)
}

fn see(seen: &mut Seen, row: &Row<'_>, selector: &Selector, page: &Page, now: u64) -> Step<ControlFlow<()>> {
    let resource = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
    let expires = rows::unsigned(row, 12)?;
    let shown = &mut seen.inspection.resources;
    if shown.last().is_none_or(|last| last.resource.as_str() != resource) {
        let name = Name::from_stored(resource)
            .map_err(|problem| error(palisade_core::ErrorKind::Corrupt, problem.to_string()))?;
        if !selector.matches(&name) {
            return Ok(ControlFlow::Break(()));
        }
        if expires <= now {
            note_stale(&mut seen.stale, resource);
            return Ok(ControlFlow::Continue(()));
        }
        if shown.len() >= page.limit {
            seen.inspection.next = shown.last().map(|last| last.resource.clone());
            return Ok(ControlFlow::Break(()));
        }
        shown.push(ResourceView::free(name));
    }
    if expires <= now {
        note_stale(&mut seen.stale, resource);
        return Ok(ControlFlow::Continue(()));
    }
    seen.next_expiry = Some(seen.next_expiry.map_or(expires, |first| first.min(expires)));
    let claim = rows::view(row, 1, now)?;
    if let Some(last) = shown.last_mut() {
        if claim.token.is_some() { last.holders.push(claim) } else { last.waiters.push(claim) }
    }
    Ok(ControlFlow::Continue(()))
}

fn note_stale(stale: &mut Vec<String>, resource: &str) {
    if stale.last().is_none_or(|last| last != resource) {
        stale.push(resource.to_owned());
    }
}
