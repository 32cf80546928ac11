//! What is shown of rows that other clients have.

use std::collections::HashMap;
use std::sync::Arc;

use palisade_core::{
    ClaimView, Clock, Family, Inspection, Matching, Mode, Name, Owner, Page, ResourceView, Result, Selector,
    SystemClock, WatchStream, Watched,
};

use super::has_row;
use super::rows::Rows;
use super::signature::{Held, Whose};

impl Rows {
    /// As the claims are; who waits for a row of somebody else does not hold. Who has it is shown to those who ask by name,
    /// as on Redis: a table of ShedLock's may hold thousands of names that are none of ours.
    pub(super) async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        let mut inspection = self.inner.inspect(selector, page).await?;
        if !selector.wants_resources() || page.limit == 0 {
            return Ok(inspection);
        }
        let exact = match &selector.matching {
            Matching::Exact(name) if page.after.as_ref().is_none_or(|after| name > after) => Some(name),
            _ => None,
        };
        let names = inspection.resources.iter().map(|view| &view.resource).chain(exact);
        let names: Vec<&str> = names.filter(|name| has_row(name)).map(Name::as_str).collect();
        if names.is_empty() {
            return Ok(inspection);
        }
        let line = self.inner.link.line().await?;
        let held = self.table.look(&line, &names).await?;
        let held = held.into_iter().filter(|held| held.whose != Whose::Ours);
        let held: HashMap<String, Held> = held.map(|held| (held.name.clone(), held)).collect();
        if let Some(name) = exact
            && held.contains_key(name.as_str())
            && inspection.resources.is_empty()
        {
            inspection.resources.push(ResourceView::free(name.clone()));
        }
        for view in &mut inspection.resources {
            if let Some(held) = held.get(view.resource.as_str()) {
                let waits = view.holders.drain(..).map(|claim| ClaimView { token: None, ..claim });
                let waits: Vec<ClaimView> = waits.collect();
                view.waiters.splice(0..0, waits);
                view.holders.extend(exact.map(|_| foreign(held)));
            }
        }
        Ok(inspection)
    }

    pub(super) async fn watch(self: &Arc<Self>, selector: &Selector) -> Result<WatchStream> {
        let (rows, selector) = (Arc::clone(self), selector.clone());
        let look = move || {
            let (rows, selector) = (Arc::clone(&rows), selector.clone());
            async move { rows.look_around(&selector).await }
        };
        crate::watch::watch(&self.inner, look).await
    }

    async fn look_around(&self, selector: &Selector) -> Result<Watched> {
        let asked_at = SystemClock.now();
        let resources = self.inspect(selector, &Page { after: None, limit: usize::MAX }).await?.resources;
        self.inner.watched(selector, resources, asked_at).await
    }
}

/// Another client's hold: all that is known is what it wrote into the row.
pub(super) fn foreign(held: &Held) -> ClaimView {
    const SHOWN: usize = 80;
    let by: String = held.by.chars().take(SHOWN).collect();
    let who = match &held.whose {
        Whose::Ours => "a Palisade client".to_owned(),
        Whose::OtherNames(name) => {
            format!("a Palisade client that has {name:?}, which is the same to ShedLock's table")
        }
        Whose::OtherSchemas => "a Palisade client of another schema".to_owned(),
        Whose::Strangers => "not a Palisade client".to_owned(),
    };
    let owner = Owner {
        client: "another-client".to_owned(),
        host: String::new(),
        pid: 0,
        label: Some(format!("{who}; ShedLock's row says {by:?}")),
        trace: None,
    };
    ClaimView {
        claim: held.id,
        family: Family::Mutex,
        mode: Mode::Exclusive,
        slot: None,
        token: None,
        owner: Arc::new(owner),
        value: None,
        age: held.age,
        expires_in: Some(held.remains),
    }
}
