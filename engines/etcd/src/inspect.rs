use std::collections::BTreeSet;

use palisade_core::{Inspection, Matching, Name, Page, ResourceView, Result, Selector};

use crate::engine::Inner;
use crate::line::{Line, look_at};
use crate::proto::RangeRequest;
use crate::txn::{Answers, Txn};

/// How many keys are read at once: few enough for any server.
const AT_ONCE: i64 = 5_000;

impl Inner {
    pub(crate) async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        if !selector.wants_resources() {
            return Ok(Inspection::default());
        }
        let after = |name: &Name| page.after.as_ref().is_none_or(|after| name > after);
        let mut names = self.resources(selector).await?.into_iter().filter(after).peekable();
        let mut inspection = Inspection::default();
        while inspection.resources.len() < page.limit && names.peek().is_some() {
            // Each is four parts of a transaction, which may have 128.
            let room = (page.limit - inspection.resources.len()).min(30);
            let some: Vec<Name> = names.by_ref().take(room).collect();
            inspection.resources.extend(self.look_at_all(some).await?);
        }
        if names.peek().is_some() {
            inspection.next = inspection.resources.last().map(|last| last.resource.clone());
        }
        Ok(inspection)
    }

    /// Names of resources that may have claims. Without a namespace and a prefix that is to look at all keys
    /// there are, a few at a time.
    async fn resources(&self, selector: &Selector) -> Result<BTreeSet<Name>> {
        match &selector.matching {
            Matching::Exact(name) => Ok([name.clone()].into()),
            Matching::Prefix(prefix) => {
                let mut names = BTreeSet::new();
                let mut range =
                    RangeRequest { keys_only: true, limit: AT_ONCE, ..self.layout.locks_under(prefix) };
                loop {
                    let answer = self.link.range(range.clone()).await?.value;
                    let locks = answer.kvs.iter().filter_map(|key| self.layout.resource_of(&key.key));
                    names.extend(locks.filter(|name| selector.matches(name)));
                    let Some(last) = answer.kvs.last().filter(|_| answer.more) else { return Ok(names) };
                    range.key = [&last.key[..], &[0]].concat();
                }
            }
        }
    }

    /// Those of the resources that have claims.
    async fn look_at_all(&self, names: Vec<Name>) -> Result<Vec<ResourceView>> {
        let resources: Vec<_> = names.iter().map(|name| self.layout.resource(name)).collect();
        let txn = Txn::new().then_all(resources.iter().flat_map(|resource| look_at(resource, None)));
        let mut answers = Answers::of(self.link.look(txn).await?.value);
        let mut views = Vec::new();
        for (name, resource) in names.into_iter().zip(&resources) {
            let line = Line::read(resource, &mut answers)?;
            if !line.entries.is_empty() {
                views.push(line.shown(name)?);
            }
        }
        Ok(views)
    }
}
