use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use palisade_core::{
    Claim, ClaimId, ClaimView, Clock, Family, Inspection, Matching, Mode, Name, Owner, Page, ResourceView,
    Result, Selector, SystemClock, WatchStream, Watched, watch_by_looking,
};
use serde::Deserialize;

use super::engine::Inner;
use super::seat::Seat;
use super::verbs::InLine;
use crate::error::{closed, unexpected};
use crate::rows::{bytes_of_hex, family, micros};

/// For how long to wait for what is noted late: far longer than its client needs, unless that is stopped.
const NOTED_WITHIN: Duration = Duration::from_millis(500);

/// How often a watch looks.
const EVERY: Duration = Duration::from_millis(100);

/// A session lock that somebody has or waits for.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What the server calls the connection.
    pub(crate) pid: i64,
    pub(crate) seat: String,
    pub(crate) key: i64,
    pub(crate) granted: bool,
    pub(crate) exclusive: bool,
    /// The resource, and what is noted of the claim, if anything is.
    pub(crate) noted: Option<(String, String)>,
}

/// What is noted of a claim.
#[derive(Debug, Deserialize)]
struct Noted {
    id: String,
    family: i16,
    token: Option<u64>,
    age: i64,
    owner: String,
    value: Option<String>,
}

impl Noted {
    fn view(&self, mode: Mode) -> Result<ClaimView> {
        let owner: Owner = serde_json::from_str(&self.owner).map_err(|error| unexpected().because(error))?;
        Ok(ClaimView {
            claim: self.id.parse().map_err(|_| unexpected())?,
            family: family(self.family).ok_or_else(unexpected)?,
            mode,
            slot: None,
            token: self.token.and_then(palisade_core::Token::new),
            owner: Arc::new(owner),
            value: self.value.as_deref().map(bytes_of_hex).transpose()?,
            age: micros(Some(self.age)),
            expires_in: None,
        })
    }
}

impl Inner {
    /// Who holds what `claim` asks for.
    pub(super) async fn holders(&self, claim: &Claim, key: i64) -> Result<Vec<ClaimView>> {
        let seen = self.look(Some(key), |seen| seen.granted).await?;
        seen.iter()
            .filter(|(seen, _)| seen.granted)
            .map(|(seen, noted)| view(seen, noted.as_ref(), claim.family))
            .collect()
    }

    /// How many wait ahead of a seat; `None` if it does not wait.
    pub(super) async fn ahead(&self, key: i64, seat: &Seat) -> Result<Option<u32>> {
        let waiting = self.in_line(key).await?.sessions.into_iter().filter(|(_, granted)| !granted);
        let place = waiting.into_iter().position(|(pid, _)| pid == seat.pid());
        Ok(place.and_then(|place| place.try_into().ok()))
    }

    /// Who holds a lock, and who waits for it, in their order.
    pub(super) async fn in_line(&self, key: i64) -> Result<InLine> {
        let line = self.desk.inner.link.line().await?;
        let sent = SystemClock.now();
        let sessions = line.in_line(&self.terms.namespace, key, &self.locks).await?;
        Ok(InLine { sent, sessions })
    }

    /// Who holds and waits, with what is noted of them; for one key, or for all of this namespace. Waits for the notes of those
    /// that are `wanted`, and were there at the first look: who takes turns with others is never noted, and the next one is
    /// there by then.
    async fn look(
        &self,
        key: Option<i64>,
        wanted: impl Fn(&Seen) -> bool,
    ) -> Result<Vec<(Seen, Option<Noted>)>> {
        if key.is_none() && !self.terms.lists_locks() {
            self.note_all().await?;
        }
        let until = SystemClock.now() + NOTED_WITHIN;
        let mut pause = Duration::from_millis(1);
        let mut awaited: Option<HashSet<(i64, i64, bool)>> = None;
        loop {
            let line = self.desk.inner.link.line().await?;
            let mut all = Vec::new();
            let mut unnoted = HashSet::new();
            for seen in line.sessions(&self.terms.namespace, key, &self.seat_mark, &self.locks).await? {
                let noted = seen.noted.as_ref().map(|(_, noted)| serde_json::from_str::<Noted>(noted));
                let noted = noted.transpose().map_err(|error| unexpected().because(error))?;
                let whole = noted.as_ref().is_some_and(|noted| !seen.granted || noted.token.is_some());
                if seen.seat.starts_with(&self.seat_mark) && !whole && wanted(&seen) {
                    unnoted.insert((seen.pid, seen.key, seen.granted));
                }
                all.push((seen, noted));
            }
            if let Some(awaited) = &awaited {
                unnoted.retain(|one| awaited.contains(one));
            }
            if unnoted.is_empty() || SystemClock.now() >= until {
                return Ok(all);
            }
            awaited = Some(unnoted);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    pub(super) async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.check_open()?;
        let mut inspection = Inspection::default();
        if !selector.wants_resources() || page.limit == 0 {
            return Ok(inspection);
        }
        let exact = match &selector.matching {
            Matching::Exact(name) => Some(name),
            Matching::Prefix(_) => None,
        };
        let key = exact.map(|name| self.terms.key_of(name));
        let mut resources: BTreeMap<Name, ResourceView> = BTreeMap::new();
        for (seen, noted) in self.look(key, |_| true).await? {
            let name = match (&seen.noted, exact) {
                (Some((name, _)), _) => Name::from_stored(name).map_err(|_| unexpected())?,
                // Held by another program, or not noted yet: whose it is, is known by its number alone.
                (None, Some(name)) => name.clone(),
                (None, None) => continue,
            };
            if !selector.matches(&name) || page.after.as_ref().is_some_and(|after| name <= *after) {
                continue;
            }
            let claim = view(&seen, noted.as_ref(), Family::Mutex)?;
            let resource = resources.entry(name.clone()).or_insert_with(|| ResourceView::free(name));
            if seen.granted { resource.holders.push(claim) } else { resource.waiters.push(claim) }
        }
        let more = resources.len() > page.limit;
        inspection.resources = resources.into_values().take(page.limit).collect();
        if more {
            inspection.next = inspection.resources.last().map(|last| last.resource.clone());
        }
        Ok(inspection)
    }

    async fn look_around(&self, selector: &Selector) -> Result<Watched> {
        if self.is_closed() {
            return Err(closed());
        }
        let mut watched = Watched::default();
        let asked_at = SystemClock.now();
        if selector.wants_resources() {
            let page = Page { after: None, limit: usize::MAX };
            watched.resources = self.inspect(selector, &page).await?.resources;
        }
        if selector.wants_registers() {
            watched.registers = self.desk.inner.registers(selector).await?;
        }
        let expiries = watched.registers.iter().filter_map(|(_, entry)| entry.expires_in);
        watched.next_change = expiries.min().map(|soonest| asked_at + soonest + Duration::from_millis(2));
        Ok(watched)
    }
}

/// Follows changes by looking again and again.
pub(super) async fn watch(inner: &Arc<Inner>, selector: &Selector) -> Result<WatchStream> {
    inner.check_open()?;
    // What cannot be seen at all is told at once.
    inner.desk.inner.link.line().await?;
    let (looking, selector) = (Arc::clone(inner), selector.clone());
    let look = move || {
        let (inner, selector) = (Arc::clone(&looking), selector.clone());
        async move { inner.look_around(&selector).await }
    };
    let closing = Arc::clone(inner);
    let changed = move || {
        let inner = Arc::clone(&closing);
        async move {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = inner.until_closed() => {}
            }
        }
        .boxed()
    };
    Ok(watch_by_looking(Arc::new(SystemClock), look, changed))
}

/// A claim as it is shown: by what is noted of it, else by its connection.
fn view(seen: &Seen, noted: Option<&Noted>, family: Family) -> Result<ClaimView> {
    let mode = if seen.exclusive { Mode::Exclusive } else { Mode::Shared };
    if let Some(noted) = noted {
        return noted.view(mode);
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&seen.pid.to_be_bytes());
    id[8..].copy_from_slice(&seen.key.to_be_bytes());
    Ok(ClaimView {
        claim: ClaimId::from_bytes(id),
        family,
        mode,
        slot: None,
        token: None,
        owner: Arc::new(Owner {
            client: seen.seat.clone(),
            host: String::new(),
            pid: u32::try_from(seen.pid).unwrap_or(0),
            label: Some("a session of the server".to_owned()),
            trace: None,
        }),
        value: None,
        age: Duration::ZERO,
        expires_in: None,
    })
}
