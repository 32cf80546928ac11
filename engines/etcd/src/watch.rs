use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use palisade_core::{
    Entry, Matching, Name, Page, Reading, Result, Selector, SystemClock, Version, WatchStream, Watched,
    watch_by_looking,
};
use tokio::sync::watch;

use crate::engine::Inner;
use crate::error::closed;
use crate::proto::RangeRequest;
use crate::txn::all_under;
use crate::watching::Ear;

/// Follows changes by being told that some key has changed, and looking.
pub(crate) async fn watch(inner: &Arc<Inner>, selector: &Selector) -> Result<WatchStream> {
    let changes = Arc::new(watch::Sender::new(Changes::default()));
    let mut heard = changes.subscribe();
    let mut ears = inner.ears(selector).await?;
    for ear in &mut ears {
        ear.stands().await?;
    }
    // Ends with the stream, which holds the only receivers.
    tokio::spawn(follow(ears, Arc::clone(&changes)));
    let (inner, selector) = (Arc::clone(inner), selector.clone());
    let (closing, state) = (Arc::clone(&inner), heard.clone());
    let look = move || {
        let (inner, selector, state) = (Arc::clone(&inner), selector.clone(), state.clone());
        async move {
            if inner.link.is_closed() {
                return Err(closed());
            }
            if state.borrow().over {
                return Err(crate::watching::deaf());
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
                () = closing.link.until_closed() => {}
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
async fn follow(mut ears: Vec<Ear>, changes: Arc<watch::Sender<Changes>>) {
    loop {
        let next = select_all(ears.iter_mut().map(|ear| ear.something().boxed()));
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
    async fn ears(&self, selector: &Selector) -> Result<Vec<Ear>> {
        let in_use = self.link.line().await?;
        let watching = &in_use.line.watching;
        let mut ears = Vec::new();
        match &selector.matching {
            Matching::Exact(name) => {
                if selector.wants_resources() {
                    let resource = self.layout.resource(name);
                    ears.push(watching.under(&resource.locks));
                    ears.push(watching.under(&resource.records));
                }
                if selector.wants_registers() {
                    ears.push(watching.key(self.layout.register(name), true));
                    ears.push(watching.key(self.layout.value(name), true));
                }
            }
            Matching::Prefix(prefix) => {
                if selector.wants_resources() {
                    ears.push(watching.locks_under(prefix, &self.layout));
                }
                if selector.wants_registers() {
                    ears.push(watching.under(&self.layout.registers()));
                    ears.push(watching.under(&self.layout.values()));
                }
            }
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
            watched.registers = self.registers(selector).await?;
        }
        Ok(watched)
    }

    async fn registers(&self, selector: &Selector) -> Result<Vec<(Name, Entry)>> {
        let names: Vec<Name> = match &selector.matching {
            Matching::Exact(name) => vec![name.clone()],
            Matching::Prefix(_) => {
                let keys = RangeRequest { keys_only: true, ..all_under(&self.layout.registers()) };
                let keys = self.link.range(keys).await?.value.kvs;
                let names = keys.iter().filter_map(|key| self.layout.register_of(&key.key));
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
