use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use palisade_core::{
    Entry, Matching, Name, Page, Reading, Result, Selector, SystemClock, Version, WatchStream, Watched,
    watch_by_looking,
};
use tokio::sync::watch;

use crate::conn::{Ear, deaf};
use crate::engine::Inner;
use crate::error::closed;
use crate::proto::{get_children, watch_all};

/// Follows changes by being told that some node has changed, and looking.
pub(crate) async fn watch(inner: &Arc<Inner>, selector: &Selector) -> Result<WatchStream> {
    let changes = Arc::new(watch::Sender::new(Changes::default()));
    let mut heard = changes.subscribe();
    let ears = inner.ears(selector).await?;
    // Ends with the stream, which holds the only receivers.
    tokio::spawn(follow(ears, Arc::clone(&changes)));
    let (inner, selector) = (Arc::clone(inner), selector.clone());
    let (closing, state) = (Arc::clone(&inner), heard.clone());
    let look = move || {
        let (inner, selector, state) = (Arc::clone(&inner), selector.clone(), state.clone());
        async move {
            if inner.is_closed() {
                return Err(closed());
            }
            if state.borrow().over {
                return Err(deaf());
            }
            inner.look_around(&selector).await
        }
    };
    let until_told = move || -> BoxFuture<'static, ()> {
        let mut later = heard.clone();
        heard.mark_unchanged();
        let closing = Arc::clone(&closing);
        async move {
            tokio::select! {
                _ = later.changed() => {}
                () = closing.until_closed() => {}
            }
        }
        .boxed()
    };
    Ok(watch_by_looking(Arc::new(SystemClock), look, until_told))
}

#[derive(Debug, Default)]
struct Changes {
    over: bool,
}

/// Passes on that something has happened, until nobody listens any more.
async fn follow(ears: Vec<Arc<Ear>>, changes: Arc<watch::Sender<Changes>>) {
    loop {
        let next = select_all(ears.iter().map(|ear| ear.something().boxed()));
        let heard = tokio::select! {
            (heard, ..) = next => heard,
            () = changes.closed() => return,
        };
        let over = heard.is_err();
        changes.send_modify(|changes| changes.over |= over);
        if over {
            return;
        }
    }
}

impl Inner {
    /// What has to be listened to.
    async fn ears(&self, selector: &Selector) -> Result<Vec<Arc<Ear>>> {
        let exact = match &selector.matching {
            Matching::Exact(name) => Some(name),
            Matching::Prefix(_) => None,
        };
        let mut paths = Vec::new();
        if selector.wants_resources() {
            paths.push(exact.map_or_else(|| self.layout.root.clone(), |name| self.layout.resource(name)));
        }
        if selector.wants_registers() {
            paths.push(exact.map_or_else(|| self.layout.registers(), |name| self.layout.register(name)));
        }
        let main = self.main();
        let conn = main.conn().await?;
        let mut ears = Vec::new();
        for path in paths {
            ears.push(conn.listen_below(&path));
            main.answer(conn.send(watch_all(&path))).await?.ok()?;
        }
        Ok(ears)
    }

    async fn look_around(&self, selector: &Selector) -> Result<Watched> {
        let mut watched = Watched::default();
        if selector.wants_resources() {
            let page = Page { after: None, limit: usize::MAX };
            watched.resources = self.inspect(selector, &page).await?.resources;
        }
        if selector.wants_registers() {
            watched.registers = self.all_registers(selector).await?;
        }
        Ok(watched)
    }

    async fn all_registers(&self, selector: &Selector) -> Result<Vec<(Name, Entry)>> {
        let names: Vec<Name> = match &selector.matching {
            Matching::Exact(name) => vec![name.clone()],
            Matching::Prefix(_) => {
                let children =
                    self.main().ask(get_children(&self.layout.registers(), false)).await?.children()?;
                let children = children.unwrap_or_default();
                let names = children.iter().filter_map(|child| crate::keys::Layout::register_of(child));
                names.filter(|name| selector.matches(name)).collect()
            }
        };
        let mut registers = Vec::new();
        for name in names {
            if let Reading::Fresh(entry) = self.read(&name, None).await?
                && entry.version != Version::NEVER
            {
                registers.push((name, entry));
            }
        }
        Ok(registers)
    }
}
