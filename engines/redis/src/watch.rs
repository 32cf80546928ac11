use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use palisade_core::{
    BootInstant, Clock, Entry, Matching, Name, Reading, Result, Selector, SystemClock, WatchStream, Watched,
    watch_by_looking,
};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::watch;

use crate::address::HostPort;
use crate::config::Servers;
use crate::dial::{OnPush, primary, server};
use crate::engine::Inner;
use crate::error::{closed, failed};
use crate::keys::{Layout, SIDES};

/// Follows changes by being told that some key of ours has changed, and looking.
///
/// A release changes nothing but the lock key, so all lock keys are listened to, and without a prefix of their
/// own that is all keys there are; but only those that were seen to be locks count. A claim changes a side key.
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
            ear.known.lock().take();
            let watched = inner.look_around(&selector).await?;
            let locks = watched
                .resources
                .iter()
                .map(|view| inner.layout.lock(&view.resource).into_owned().into_bytes());
            *ear.known.lock() = Some(locks.collect());
            Ok(watched)
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

/// The lock keys that the last look saw. None while it lasts, because then any key may be one.
type Known = Arc<Mutex<Option<HashSet<Vec<u8>>>>>;

/// A connection that hears of every change of a key of ours.
struct Ear {
    changes: Arc<watch::Sender<u64>>,
    known: Known,
    /// Whether it has gone deaf.
    deaf: Arc<AtomicBool>,
    _lines: Vec<MultiplexedConnection>,
}

impl Ear {
    async fn listen(inner: &Inner) -> Result<Self> {
        let changes = Arc::new(watch::Sender::new(0_u64));
        let deaf = Arc::new(AtomicBool::new(false));
        let known = Known::default();
        let (told, lost, locks) = (Arc::clone(&changes), Arc::clone(&deaf), Arc::clone(&known));
        let on_push: OnPush = Arc::new(move |info: PushInfo| {
            if info.kind == PushKind::Disconnection {
                lost.store(true, Ordering::Relaxed);
            } else if locks.lock().as_ref().is_some_and(|locks| !is_news(&info, locks)) {
                return;
            }
            told.send_modify(|count| *count += 1);
        });
        let mut command = redis::cmd("CLIENT");
        command.arg("TRACKING").arg("ON").arg("BCAST");
        for prefix in prefixes(inner.layout.lock_prefix()) {
            command.arg("PREFIX").arg(prefix);
        }
        let mut lines = Vec::new();
        for address in inner.addresses().await? {
            let mut line = server(&inner.config, &address, &inner.config.login, Arc::clone(&on_push)).await?;
            // Nobody watches over this connection.
            let listening = command.exec_async(&mut line);
            let listening = tokio::time::timeout(inner.config.call_timeout, listening).await;
            listening
                .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
                .map_err(failed)?;
            lines.push(line);
        }
        Ok(Self { changes, known, deaf, _lines: lines })
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

/// Whether a change concerns us: a side key, a lock that was seen, or everything.
fn is_news(info: &PushInfo, locks: &HashSet<Vec<u8>>) -> bool {
    let Some(Value::Array(keys)) = info.data.first() else { return true };
    keys.iter().any(|key| match key {
        Value::BulkString(key) => key.starts_with(SIDES.as_bytes()) || locks.contains(key),
        _ => true,
    })
}

/// What to listen to; nothing for everything. A server refuses prefixes of which one contains another.
fn prefixes(lock_prefix: &str) -> Vec<&str> {
    match lock_prefix {
        "" => Vec::new(),
        own if SIDES.starts_with(own) => vec![own],
        own => vec![SIDES, own],
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
