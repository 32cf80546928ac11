use std::collections::BTreeSet;

use palisade_core::{Inspection, Matching, Name, Page, ResourceView, Result, Selector};

use crate::engine::Inner;
use crate::proto::{get_children, sync};

impl Inner {
    pub(crate) async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        const TOGETHER: usize = 200;
        if !selector.wants_resources() {
            return Ok(Inspection::default());
        }
        let after = |name: &Name| page.after.as_ref().is_none_or(|after| name > after);
        let mut names = self.resources(selector).await?.into_iter().filter(after).peekable();
        let mut inspection = Inspection::default();
        while inspection.resources.len() < page.limit && names.peek().is_some() {
            let room = (page.limit - inspection.resources.len()).min(TOGETHER);
            let some: Vec<Name> = names.by_ref().take(room).collect();
            inspection.resources.extend(self.look_at_all(some).await?);
        }
        if names.peek().is_some() {
            inspection.next = inspection.resources.last().map(|last| last.resource.clone());
        }
        Ok(inspection)
    }

    /// Names of resources that may have claims, other clients' among them.
    async fn resources(&self, selector: &Selector) -> Result<BTreeSet<Name>> {
        let main = self.main();
        let conn = main.conn().await?;
        let caught_up = conn.send(sync(&self.layout.root));
        if let Matching::Exact(name) = &selector.matching {
            main.answer(caught_up).await?.found()?;
            return Ok([name.clone()].into());
        }
        let look = conn.send(get_children(&self.layout.root, false));
        main.answer(caught_up).await?.found()?;
        let children = main.answer(look).await?.children()?.unwrap_or_default();
        let names = children.iter().filter_map(|child| self.layout.resource_of(child));
        Ok(names.filter(|name| selector.matches(name)).collect())
    }

    /// Those of the resources that have claims.
    async fn look_at_all(&self, names: Vec<Name>) -> Result<Vec<ResourceView>> {
        let main = self.main();
        let conn = main.conn().await?;
        let folders: Vec<String> = names.iter().map(|name| self.layout.resource(name)).collect();
        let looks: Vec<_> = folders.iter().map(|folder| conn.send(get_children(folder, false))).collect();
        let mut views = Vec::new();
        for ((name, folder), look) in names.into_iter().zip(&folders).zip(looks) {
            let children = main.answer(look).await?.children()?.unwrap_or_default();
            let mut line = self.list_below(&main, folder, children).await?;
            let count = line.entries.len();
            if count > 0 && !self.fill(&main, folder, &mut line, count).await? {
                line = self.line_of(&name).await?;
            }
            if !line.entries.is_empty() {
                views.push(line.shown(name)?);
            }
        }
        Ok(views)
    }
}
