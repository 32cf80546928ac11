use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use palisade_core::{
    BootInstant, Clock, Page, ResourceView, Result, Selector, SystemClock, WatchStream, Watched,
    watch_by_looking,
};

use crate::engine::Inner;
use crate::error::closed;

/// How often to look. A server that told of every change would have to be told by every change that somebody
/// watches, and a notification holds up all commits.
const EVERY: Duration = Duration::from_millis(100);

/// Follows changes by looking again and again.
pub(crate) async fn watch<L, F>(inner: &Arc<Inner>, look: L) -> Result<WatchStream>
where
    L: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<Watched>> + Send,
{
    // What cannot be seen at all is told at once.
    inner.link.line().await?;
    let closing = Arc::clone(inner);
    let changed = move || {
        let inner = Arc::clone(&closing);
        async move {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = inner.link.until_closed() => {}
            }
        }
        .boxed()
    };
    Ok(watch_by_looking(Arc::new(SystemClock), look, changed))
}

impl Inner {
    pub(crate) async fn watch(self: &Arc<Self>, selector: &Selector) -> Result<WatchStream> {
        let (looking, selector) = (Arc::clone(self), selector.clone());
        let look = move || {
            let (inner, selector) = (Arc::clone(&looking), selector.clone());
            async move { inner.look_around(&selector).await }
        };
        watch(self, look).await
    }

    async fn look_around(&self, selector: &Selector) -> Result<Watched> {
        if self.link.is_closed() {
            return Err(closed());
        }
        let asked_at = SystemClock.now();
        let resources = self.inspect(selector, &Page { after: None, limit: usize::MAX }).await?.resources;
        self.watched(selector, resources, asked_at).await
    }

    /// What a watch is told of these resources and of the registers, which were asked for then.
    pub(crate) async fn watched(
        &self,
        selector: &Selector,
        resources: Vec<ResourceView>,
        asked_at: BootInstant,
    ) -> Result<Watched> {
        let mut watched = Watched { resources, ..Watched::default() };
        if selector.wants_registers() {
            watched.registers = self.registers(selector).await?;
        }
        watched.next_change = next_change(&watched, asked_at);
        Ok(watched)
    }
}

/// When something expires next.
fn next_change(watched: &Watched, asked_at: BootInstant) -> Option<BootInstant> {
    let claims = watched.resources.iter().flat_map(|view| view.holders.iter().chain(&view.waiters));
    let claims = claims.filter_map(|claim| claim.expires_in);
    let registers = watched.registers.iter().filter_map(|(_, entry)| entry.expires_in);
    // A little later: two clocks.
    let soonest = claims.chain(registers).min()?;
    Some(asked_at + soonest + Duration::from_millis(2))
}
