use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use palisade_core::{
    BootInstant, Clock, Entry, Matching, Name, Reading, Result, Selector, SystemClock, WatchStream, Watched,
    watch_by_looking,
};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind};
use tokio::sync::watch;

use crate::address::HostPort;
use crate::config::Servers;
use crate::dial::{OnPush, primary, server};
use crate::engine::Inner;
use crate::error::{closed, failed};
use crate::keys::Layout;

/// Follows changes by being told that some key of ours has changed, and looking.
///
/// It has a connection of its own: a server tells one connection either of all keys with a prefix, or
/// of those that it asked about.
pub(crate) async fn watch(inner: &Arc<Inner>, selector: &Selector) -> Result<WatchStream> {
    let ear = Arc::new(Ear::listen(inner).await?);
    let (clock, mut heard) = (Arc::new(SystemClock), ear.changes.subscribe());
    let (inner, selector) = (Arc::clone(inner), selector.clone());
    let closing = Arc::clone(&inner);
    let look = move || {
        let (inner, selector, ear) = (Arc::clone(&inner), selector.clone(), Arc::clone(&ear));
        async move {
            ear.check()?;
            inner.look_around(&selector).await
        }
    };
    let changed = move || {
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
    Ok(watch_by_looking(clock, look, changed))
}

/// A connection that hears of every change of a key of ours.
struct Ear {
    changes: Arc<watch::Sender<u64>>,
    /// Whether it has gone deaf.
    deaf: Arc<AtomicBool>,
    _lines: Vec<MultiplexedConnection>,
}

impl Ear {
    async fn listen(inner: &Inner) -> Result<Self> {
        let changes = Arc::new(watch::Sender::new(0_u64));
        let deaf = Arc::new(AtomicBool::new(false));
        let (told, lost) = (Arc::clone(&changes), Arc::clone(&deaf));
        let on_push: OnPush = Arc::new(move |info: PushInfo| {
            if info.kind == PushKind::Disconnection {
                lost.store(true, Ordering::Relaxed);
            }
            told.send_modify(|count| *count += 1);
        });
        let mut command = redis::cmd("CLIENT");
        command.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX").arg("palisade:");
        let mut lines = Vec::new();
        for address in inner.addresses().await? {
            let mut line = server(&inner.config, &address, &inner.config.login, Arc::clone(&on_push)).await?;
            command.exec_async(&mut line).await.map_err(failed)?;
            lines.push(line);
        }
        Ok(Self { changes, deaf, _lines: lines })
    }

    fn check(&self) -> Result<()> {
        if self.deaf.load(Ordering::Relaxed) {
            return Err(failed(redis::RedisError::from(std::io::Error::from(
                std::io::ErrorKind::BrokenPipe,
            ))));
        }
        Ok(())
    }
}

impl Inner {
    /// All servers that decide now.
    async fn addresses(&self) -> Result<Vec<HostPort>> {
        match &self.config.servers {
            Servers::Single(address) => Ok(vec![address.clone()]),
            Servers::Sentinel { sentinels, service } => {
                Ok(vec![primary(&self.config, sentinels, service).await?])
            }
            Servers::Cluster(_) => {
                let masters = self.nodes().await?.into_iter().flatten();
                Ok(masters.map(|(host, port)| HostPort { host, port }).collect())
            }
        }
    }

    async fn look_around(&self, selector: &Selector) -> Result<Watched> {
        if self.link.is_closed() {
            return Err(closed());
        }
        let mut watched = Watched::default();
        let asked_at = SystemClock.now();
        if selector.wants_resources() {
            let page = palisade_core::Page { after: None, limit: usize::MAX };
            watched.resources = self.inspect(selector, &page).await?.resources;
        }
        if selector.wants_registers() {
            watched.registers = self.registers(selector).await?;
        }
        watched.next_change = next_change(&watched, asked_at);
        if matches!(self.config.servers, Servers::Cluster(_)) {
            // A slot may have moved to a server that we do not listen to.
            let soon = asked_at + Duration::from_secs(1);
            watched.next_change = Some(watched.next_change.map_or(soon, |next| next.min(soon)));
        }
        Ok(watched)
    }

    async fn registers(&self, selector: &Selector) -> Result<Vec<(Name, Entry)>> {
        let names: Vec<Name> = match &selector.matching {
            Matching::Exact(name) => vec![name.clone()],
            Matching::Prefix(_) => {
                let keys = self.scan(&Layout::registers_pattern()).await?;
                let names = keys.iter().filter_map(|key| self.layout.register_of(key));
                names.filter(|name| selector.matches(name)).collect()
            }
        };
        let mut registers = Vec::new();
        for name in names {
            if let Reading::Fresh(entry) = self.read(&name, None).await?
                && entry.version != palisade_core::Version::NEVER
            {
                registers.push((name, entry));
            }
        }
        Ok(registers)
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
