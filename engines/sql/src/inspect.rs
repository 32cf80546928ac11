use palisade_core::{Inspection, Matching, Name, Page, ResourceView, Result, Selector};

use crate::engine::Inner;
use crate::error::unexpected;
use crate::rows::Shown;

impl Inner {
    pub(crate) async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        let mut inspection = Inspection::default();
        if !selector.wants_resources() || page.limit == 0 {
            return Ok(inspection);
        }
        let (exact, prefix) = match &selector.matching {
            Matching::Exact(name) => (Some(name.as_str()), ""),
            Matching::Prefix(prefix) => (None, prefix.as_str()),
        };
        let after = page.after.as_ref().map(Name::as_str);
        let line = self.link.line().await?;
        // One more than wanted, to know whether there is a next page.
        let limit = page.limit.saturating_add(1);
        let shown = line.show(&self.config.namespace, exact, prefix, after, limit).await?;
        for (resource, claim) in shown {
            let views = &mut inspection.resources;
            if views.last().is_none_or(|last| last.resource.as_str() != resource) {
                views.push(ResourceView::free(Name::from_stored(&resource).map_err(|_| unexpected())?));
            }
            let claim = Shown::parse(&claim)?.view()?;
            if let Some(last) = views.last_mut() {
                if claim.token.is_some() { last.holders.push(claim) } else { last.waiters.push(claim) }
            }
        }
        if inspection.resources.len() > page.limit {
            inspection.resources.truncate(page.limit);
            inspection.next = inspection.resources.last().map(|last| last.resource.clone());
        }
        Ok(inspection)
    }
}
