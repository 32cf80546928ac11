use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures::future::{BoxFuture, Either, select};
use futures::stream::{self, BoxStream, StreamExt};

use crate::{BootInstant, Clock, Entry, Name, ResourceView, Result, Version};

/// One change, with the state after it.
///
/// States that came and went between two looks may be left out; the latest state never is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A resource is held or queued for differently. Nobody holding or waiting means it is free.
    Resource(ResourceView),
    /// A register was written, deleted, or has expired.
    Register(Name, Entry),
}

/// Changes as they come. Begins with the present state of everything that exists, ends after an error.
pub type WatchStream = BoxStream<'static, Result<WatchEvent>>;

/// What a watch saw at one look.
#[derive(Debug, Default)]
pub struct Watched {
    /// All resources that have claims.
    pub resources: Vec<ResourceView>,
    /// All registers that were ever written.
    pub registers: Vec<(Name, Entry)>,
    /// When the state changes by itself next, because something expires.
    pub next_change: Option<BootInstant>,
}

/// Makes a [`WatchStream`] for an engine that can say "something changed" but not what.
///
/// `look` reads the present state; `changed` completes once a look may show something new since
/// the last one began. Differences between two looks become events.
pub fn watch_by_looking<L, LF, C>(clock: Arc<dyn Clock>, look: L, changed: C) -> WatchStream
where
    L: Fn() -> LF + Send + Sync + 'static,
    LF: Future<Output = Result<Watched>> + Send,
    C: FnMut() -> BoxFuture<'static, ()> + Send + 'static,
{
    let state = Looking {
        clock,
        look,
        changed,
        seen: Seen::default(),
        pending: Vec::new(),
        next_change: None,
        started: false,
    };
    let events = stream::unfold(Some(state), |state| async move {
        let mut state = state?;
        let event = state.next().await;
        let go_on = event.is_ok().then_some(state);
        Some((event, go_on))
    });
    // Polled again after its end it stays ended, instead of a panic.
    events.fuse().boxed()
}

struct Looking<L, C> {
    clock: Arc<dyn Clock>,
    look: L,
    changed: C,
    seen: Seen,
    /// Events of the last look, latest first.
    pending: Vec<WatchEvent>,
    next_change: Option<BootInstant>,
    started: bool,
}

impl<L, LF, C> Looking<L, C>
where
    L: Fn() -> LF,
    LF: Future<Output = Result<Watched>> + Send,
    C: FnMut() -> BoxFuture<'static, ()>,
{
    async fn next(&mut self) -> Result<WatchEvent> {
        loop {
            if let Some(event) = self.pending.pop() {
                return Ok(event);
            }
            if std::mem::replace(&mut self.started, true) {
                let wake = self.clock.sleep_until(self.next_change.unwrap_or(BootInstant::FAR_FUTURE));
                match select((self.changed)(), wake).await {
                    Either::Left(_) | Either::Right(_) => {}
                }
            }
            let watched = (self.look)().await?;
            self.next_change = watched.next_change;
            self.pending = self.seen.differences(watched);
            self.pending.reverse();
        }
    }
}

#[derive(Default)]
struct Seen {
    resources: BTreeMap<Name, ResourceView>,
    registers: BTreeMap<Name, Version>,
}

impl Seen {
    fn differences(&mut self, watched: Watched) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        let mut before = std::mem::take(&mut self.resources);
        for view in watched.resources {
            let known = before.remove(&view.resource);
            self.resources.insert(view.resource.clone(), view.clone());
            if known.is_none_or(|known| shape(&known) != shape(&view)) {
                events.push(WatchEvent::Resource(view));
            }
        }
        events.extend(before.into_keys().map(|name| WatchEvent::Resource(ResourceView::free(name))));
        for (name, entry) in watched.registers {
            if self.registers.insert(name.clone(), entry.version) != Some(entry.version) {
                events.push(WatchEvent::Register(name, entry));
            }
        }
        events
    }
}

/// What of a resource counts as a change: ages and remaining times move by themselves.
fn shape(view: &ResourceView) -> impl PartialEq {
    let claims = |claims: &[crate::ClaimView]| -> Vec<_> {
        claims.iter().map(|claim| (claim.claim, claim.mode, claim.token, claim.value.clone())).collect()
    };
    (claims(&view.holders), claims(&view.waiters))
}
