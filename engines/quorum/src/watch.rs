//! What the nodes show together, now and as it changes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use futures::stream::{FuturesUnordered, SelectAll, StreamExt};
use palisade_core::{Inspection, Page, Result, Selector, WatchEvent, WatchStream, Watched, watch_by_looking};

use crate::core::Core;
use crate::error::{Failure, closed, too_few};
use crate::merge::merge;

impl Core {
    /// How often to look where a node cannot say that something changed.
    const LOOK: Duration = Duration::from_secs(1);
    /// How often to look where all can: an end that no node noticed must show at last.
    const REST: Duration = Duration::from_secs(30);

    pub(crate) async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.check_open()?;
        if !selector.wants_resources() {
            return Ok(Inspection::default());
        }
        let limit = self.limit_about(page.limit);
        let mut asked: FuturesUnordered<_> = (0..self.nodes())
            .map(|node| {
                let (selector, page) = (selector.clone(), page.clone());
                let asking = self
                    .ask(limit.clone(), node, |engine| async move { engine.inspect(&selector, &page).await });
                async move { (node, asking.await) }
            })
            .collect();
        let (mut answers, mut troubles) = (Vec::new(), Vec::new());
        // A silent node does not hold up for long what the others show; but who waits does so at one node only, and would
        // not be shown without it.
        let patience = self.node_timeout * 4;
        while let Some((node, answer)) = if answers.len() < self.majority {
            asked.next().await
        } else {
            tokio::time::timeout(patience, asked.next()).await.ok().flatten()
        } {
            match answer {
                Ok(answer) => answers.push((node, answer)),
                Err(error) => troubles.push((self.voters[node].node.name.clone(), Failure::of(&error))),
            }
        }
        if answers.len() < self.majority {
            return Err(too_few(answers.len(), self.nodes(), &troubles).error());
        }
        // In the order of the nodes, so that the line at the gate comes first.
        answers.sort_by_key(|(node, _)| *node);
        let now = self.clock.now();
        let answers = answers.into_iter().map(|(node, mut answer)| {
            // What it lets hold now has no vote, and comes in once it votes again.
            if self.voters[node].forgetful(now, self.longest_ttl).is_some() {
                for view in &mut answer.resources {
                    let holders = std::mem::take(&mut view.holders);
                    view.waiters.splice(..0, holders);
                }
            }
            answer
        });
        Ok(merge(answers.collect(), page, self.majority))
    }

    async fn everything(&self, selector: &Selector) -> Result<Watched> {
        let mut watched = Watched::default();
        let mut page = Page::default();
        loop {
            let mut seen = self.inspect(selector, &page).await?;
            watched.resources.append(&mut seen.resources);
            page.after = seen.next;
            if page.after.is_none() {
                break;
            }
        }
        let claims = watched.resources.iter().flat_map(|view| view.holders.iter().chain(&view.waiters));
        let ends = claims.filter_map(|claim| claim.expires_in).min();
        // Not at once, where a node is late to notice.
        watched.next_change = ends.map(|left| self.clock.now() + left.max(Duration::from_millis(10)));
        Ok(watched)
    }

    pub(crate) async fn watch(self: &Arc<Self>, selector: &Selector) -> Result<WatchStream> {
        self.check_open()?;
        let news = Arc::new(tokio::sync::Mutex::new(self.news(selector).await));
        let (looking, selector) = (Arc::downgrade(self), selector.clone());
        let look = move || {
            let (core, selector) = (looking.upgrade(), selector.clone());
            async move { core.ok_or_else(closed)?.everything(&selector).await }
        };
        let (clock, closing, nodes) = (Arc::clone(&self.clock), self.closed.subscribe(), self.nodes());
        let changed = move || -> BoxFuture<'static, ()> {
            let (news, clock, mut closing) = (Arc::clone(&news), Arc::clone(&clock), closing.clone());
            Box::pin(async move {
                let mut news = news.lock().await;
                let pause = if news.len() < nodes { Self::LOOK } else { Self::REST };
                tokio::select! {
                    Some(_) = news.next() => {
                        // One look serves for all that is known by now.
                        while news.next().now_or_never().flatten().is_some() {}
                    }
                    _ = closing.wait_for(|closed| *closed) => {}
                    () = clock.sleep_until(clock.now() + pause) => {}
                }
            })
        };
        Ok(watch_by_looking(Arc::clone(&self.clock), look, changed))
    }

    /// Hints of all nodes that can be reached: something changed there.
    async fn news(
        &self,
        selector: &Selector,
    ) -> SelectAll<futures::stream::BoxStream<'static, Result<WatchEvent>>> {
        let limit = self.limit_about(Page::default().limit);
        let asked = (0..self.nodes()).map(|node| {
            let selector = selector.clone();
            self.ask(limit.clone(), node, |engine| async move { engine.watch(&selector).await })
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}
