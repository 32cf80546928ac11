//! Tells those who wait of their turn, where the server cannot: by `GET_LOCK`.
//!
//! Each resource has a bell, a lock of the server's. Who holds the resource alone has its bell, too; who waits for the
//! resource waits for the bell in the server, which hands it to the first of them when it is given back. Whoever has
//! it then looks whether it is its turn.
//!
//! A bell only wakes: rows decide, and everybody also looks now and then. So it does no harm that a bell may be had by
//! nobody (the holder is dead, or does not use bells), by somebody who is not first in line (that one gives it back after a
//! moment, and goes to the end of the line), or be that of two resources (a hash). While nobody has it who holds, it goes
//! round among those who wait, and only one of them looks at a time.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use palisade_core::{Claim, Error, ErrorKind, Mode, Name, Result, Source};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::ear::Ear;
use super::{MySqlConfig, POLLED};
use crate::advisory::{key_of, mark_of};
use crate::claims::Stand;
use crate::engine::Inner;
use crate::error::closed;
use crate::verbs::Said;

/// The bells of one client.
pub(crate) struct Bells {
    config: MySqlConfig,
    posts: Mutex<HashMap<Name, Arc<Post>>>,
    /// How many connections may wait, or have a bell that was waited for.
    room: Arc<Semaphore>,
    /// Those that have nothing to do.
    idle: Mutex<Vec<Arc<Ear>>>,
    /// The one that has the bells of what was free when it was asked for.
    tower: tokio::sync::Mutex<Option<Arc<Ear>>>,
    /// All that there are.
    ears: Mutex<Vec<Weak<Ear>>>,
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bells").finish_non_exhaustive()
    }
}

/// A resource that claims of this client wait for, or hold.
struct Post {
    resource: Name,
    bell: String,
    claims: Mutex<Vec<Arc<Claim>>>,
    /// How many of them are being given back at this moment.
    leaving: AtomicUsize,
    /// Told when claims come or have left.
    changed: Notify,
}

/// How the claims of this client on one resource stand.
enum Standing {
    /// None of them concerns its bell.
    Apart,
    /// One is being given back: the bell is rung once that is done.
    Leaving,
    Holds(Arc<Claim>),
    Waits(Vec<Arc<Claim>>),
}

/// By which connection a bell is had.
enum Had {
    Tower(Arc<Ear>),
    Waited(Listener),
}

impl Had {
    fn ear(&self) -> &Ear {
        match self {
            Self::Tower(ear) | Self::Waited(Listener { ear, .. }) => ear,
        }
    }
}

/// A connection that waits for one bell, or has it.
struct Listener {
    ear: Arc<Ear>,
    _room: OwnedSemaphorePermit,
}

/// Claims that are being given back. Those who wait for them are told when it is dropped.
pub(crate) struct Ringing(Vec<Arc<Post>>);

impl Drop for Ringing {
    fn drop(&mut self) {
        for post in &self.0 {
            post.leaving.fetch_sub(1, Ordering::AcqRel);
            post.changed.notify_one();
        }
    }
}

impl Bells {
    pub(crate) fn new(config: &MySqlConfig) -> Self {
        Self {
            config: config.clone(),
            posts: Mutex::default(),
            room: Arc::new(Semaphore::new(config.connections)),
            idle: Mutex::default(),
            tower: tokio::sync::Mutex::default(),
            ears: Mutex::default(),
        }
    }

    /// Refuses servers whose locks are not known to all clients, or not each one's own.
    pub(crate) async fn arrive(&self, inner: &Arc<Inner>) -> Result<()> {
        let limit = self.config.connect_timeout * 3;
        let line = inner.link.line().await?;
        tokio::time::timeout(limit, line.mysql()?.refuse_sharers(POLLED)).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("the server did not answer within {limit:?}")))
        })?;
        *self.tower.lock().await = Some(self.dial(inner).await?);
        Ok(())
    }

    /// Has a claim told of its turn, and those who wait for one that came in told when it ends.
    pub(crate) fn answered(&self, inner: &Arc<Inner>, claim: &Arc<Claim>, said: &Said) {
        /// Who holds very many has bells for some: each is two statements, and most of them wake nobody.
        const MOST: usize = 500;
        let has_room = || self.posts.lock().len() < MOST;
        match said {
            Said::Queued(..) => self.attend(inner, claim),
            Said::Granted(_) if is_alone(claim.mode) && has_room() => self.attend(inner, claim),
            Said::Granted(_) | Said::Busy(_) | Said::Gone(_) => {}
        }
    }

    fn attend(&self, inner: &Arc<Inner>, claim: &Arc<Claim>) {
        let mut posts = self.posts.lock();
        if let Some(post) = posts.get(&claim.resource) {
            let mut claims = post.claims.lock();
            if !claims.iter().any(|known| known.id == claim.id) {
                claims.push(Arc::clone(claim));
            }
            return post.changed.notify_one();
        }
        let source = inner.facts.lock().source.clone();
        let post = Arc::new(Post {
            resource: claim.resource.clone(),
            bell: name_of(&source, &self.config.namespace, &claim.resource),
            claims: Mutex::new(vec![Arc::clone(claim)]),
            leaving: AtomicUsize::new(0),
            changed: Notify::new(),
        });
        posts.insert(claim.resource.clone(), Arc::clone(&post));
        drop(posts);
        tokio::spawn(serve(Arc::clone(inner), post));
    }

    /// Notes that claims are about to be given back.
    pub(crate) fn leaving(&self, claims: &[Arc<Claim>]) -> Ringing {
        let posts = self.posts.lock();
        let left: Vec<_> = claims.iter().filter_map(|claim| posts.get(&claim.resource).cloned()).collect();
        for post in &left {
            post.leaving.fetch_add(1, Ordering::AcqRel);
        }
        Ringing(left)
    }

    /// Notes that a claim of ours keeps nobody out any more who waits.
    pub(crate) fn let_others_in(&self, claim: &Claim) {
        if let Some(post) = self.posts.lock().get(&claim.resource) {
            post.claims.lock().retain(|known| known.id != claim.id);
            post.changed.notify_one();
        }
    }

    /// Ends all connections. Completes once the server knows.
    pub(crate) async fn close(&self) {
        self.room.close();
        let ears = std::mem::take(&mut *self.ears.lock());
        let ears: Vec<_> = ears.iter().filter_map(Weak::upgrade).collect();
        join_all(ears.iter().map(|ear| ear.end_now())).await;
    }

    /// Takes a bell if nobody has it. One after the other: what is before a statement must not count as its own time,
    /// or a burst of them would cost a slow server's client all bells.
    async fn take(&self, inner: &Arc<Inner>, bell: &str) -> Result<Option<Had>> {
        let mut tower = self.tower.lock().await;
        let ear = match tower.as_ref().filter(|ear| !ear.has_ended()) {
            Some(ear) => Arc::clone(ear),
            None => Arc::clone(tower.insert(self.dial(inner).await?)),
        };
        // In doubt it may have it, for nobody.
        let taken = ear.attempt(bell).await.inspect_err(|_| ear.end())?;
        Ok(taken.then_some(Had::Tower(ear)))
    }

    async fn listener(&self, inner: &Arc<Inner>) -> Result<Listener> {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| closed())?;
        let idle = {
            let mut idle = self.idle.lock();
            idle.retain(|ear| !ear.has_ended());
            idle.pop()
        };
        let ear = match idle {
            Some(ear) => ear,
            None => self.dial(inner).await?,
        };
        Ok(Listener { ear, _room: room })
    }

    async fn dial(&self, inner: &Arc<Inner>) -> Result<Arc<Ear>> {
        let ear = Arc::new(Ear::dial(&self.config, Arc::downgrade(inner)).await?);
        let mut ears = self.ears.lock();
        // Closed meanwhile: nobody would end it.
        if self.room.is_closed() {
            return Err(closed());
        }
        ears.retain(|ear| ear.strong_count() > 0);
        ears.push(Arc::downgrade(&ear));
        Ok(ear)
    }

    /// Keeps a connection that has no bell, and waits for none, for the next.
    fn keep(&self, listener: Listener) {
        const IDLE: usize = 2;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE && !self.room.is_closed() {
            idle.push(listener.ear);
        }
    }

    async fn give_back(&self, had: Had, bell: &str) {
        let _one_at_a_time = match &had {
            Had::Tower(_) => Some(self.tower.lock().await),
            Had::Waited(_) => None,
        };
        if let Err(error) = had.ear().free(bell).await {
            tracing::debug!(%error, "a bell could not be rung; its connection ends");
            return had.ear().end();
        }
        if let Had::Waited(listener) = had {
            self.keep(listener);
        }
    }

    /// Forgets a resource that no claim is left of; `false` if one came.
    fn forget(&self, post: &Post) -> bool {
        let mut posts = self.posts.lock();
        let done = post.claims.lock().is_empty();
        if done {
            posts.remove(&post.resource);
        }
        done
    }

    /// Keeps the bell of one resource for as long as claims of ours are there.
    async fn tend(&self, inner: &Arc<Inner>, post: &Post) {
        /// What is held for less is not worth a bell: who waits meanwhile looks soon, and often at first.
        const BRIEF: Duration = Duration::from_millis(5);
        let mut had: Option<Had> = None;
        let mut misses = 0;
        // Whether it is a claim of ours that others may wait for no longer.
        let mut just_held = false;
        if let Standing::Holds(_) = post.standing(inner) {
            tokio::time::sleep(BRIEF).await;
        }
        loop {
            match (post.standing(inner), had.take()) {
                (Standing::Leaving, kept) => {
                    had = kept;
                    post.changed.notified().await;
                }
                (Standing::Apart, Some(ours)) => self.give_back(ours, &post.bell).await,
                (Standing::Apart, None) => {
                    if self.forget(post) {
                        return;
                    }
                }
                (Standing::Holds(claim), Some(ours)) => {
                    (misses, just_held) = (0, true);
                    had = post.until_it_ends(inner, &claim, ours).await;
                }
                (Standing::Holds(_), None) => had = self.take_or_wait(inner, post, &mut misses).await,
                (Standing::Waits(_), None) => had = self.wait(inner, post, &mut misses).await,
                (Standing::Waits(claims), Some(ours)) => {
                    look(inner, &claims).await;
                    if let Standing::Waits(_) = post.standing(inner) {
                        // Meanwhile nobody else needs to look, unless we have just left.
                        if !std::mem::take(&mut just_held) {
                            post.pause(inner, pause(misses).min(inner.config.poll)).await;
                            misses += 1;
                        }
                        self.give_back(ours, &post.bell).await;
                    } else {
                        had = Some(ours);
                    }
                }
            }
        }
    }

    /// Takes a bell that is free over the connection that has all of those, else waits for it.
    async fn take_or_wait(&self, inner: &Arc<Inner>, post: &Post, misses: &mut u32) -> Option<Had> {
        match self.take(inner, &post.bell).await {
            Ok(Some(taken)) => Some(taken),
            Ok(None) => self.wait(inner, post, misses).await,
            Err(error) => {
                post.goes_without(inner, &error).await;
                None
            }
        }
    }

    /// Waits for a bell, for as long as any claim needs it.
    async fn wait(&self, inner: &Arc<Inner>, post: &Post, misses: &mut u32) -> Option<Had> {
        /// Whoever waits for longer does so behind one who holds, as it should be.
        const LONG: Duration = Duration::from_millis(100);
        let listener = tokio::select! {
            listener = self.listener(inner) => listener,
            () = post.until_apart(inner) => return None,
        };
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                post.goes_without(inner, &error).await;
                return None;
            }
        };
        let began = Instant::now();
        let taken = tokio::select! {
            taken = listener.ear.wait(&post.bell) => taken,
            () = post.until_apart(inner) => listener.ear.give_up(&post.bell).await.map(|()| false),
        };
        if began.elapsed() >= LONG {
            *misses = 0;
        }
        match taken {
            Ok(true) => return Some(Had::Waited(listener)),
            Ok(false) => self.keep(listener),
            Err(error) => {
                listener.ear.end();
                post.goes_without(inner, &error).await;
            }
        }
        None
    }
}

impl Post {
    fn standing(&self, inner: &Inner) -> Standing {
        if self.leaving.load(Ordering::Acquire) > 0 {
            return Standing::Leaving;
        }
        let mut holds = None;
        let mut claims = self.claims.lock();
        claims.retain(|claim| match inner.claims.stand(claim.id) {
            Some((Stand::Held(_), _)) if is_alone(claim.mode) => {
                holds = Some(Arc::clone(claim));
                true
            }
            // Several may hold at once, and only one of them could have the bell.
            Some((Stand::Held(_) | Stand::Gone(_), _)) | None => false,
            Some((Stand::Waiting | Stand::Asked, _)) => true,
        });
        match holds {
            Some(claim) => Standing::Holds(claim),
            None if claims.is_empty() => Standing::Apart,
            None => Standing::Waits(claims.clone()),
        }
    }

    /// Completes when a claim that is held stands otherwise; what is left of the bell then.
    async fn until_it_ends(&self, inner: &Inner, claim: &Claim, ours: Had) -> Option<Had> {
        let Some(turn) = inner.claims.turn(claim.id) else { return Some(ours) };
        let ended = turn.notified();
        let mut ended = std::pin::pin!(ended);
        ended.as_mut().enable();
        if !inner.claims.is_held(claim.id) {
            return Some(ours);
        }
        tokio::select! {
            () = ended => {}
            () = self.changed.notified() => {}
            () = ours.ear().ended() => return None,
        }
        Some(ours)
    }

    /// Without a bell, too, everybody looks now and then.
    async fn goes_without(&self, inner: &Inner, error: &Error) {
        const FOR: Duration = Duration::from_secs(1);
        tracing::debug!(%error, "there is no bell");
        self.pause(inner, FOR).await;
    }

    /// Completes once no claim here needs the bell.
    async fn until_apart(&self, inner: &Inner) {
        /// Nobody tells of those that were ended by others.
        const LOOKS: Duration = Duration::from_secs(1);
        while !matches!(self.standing(inner), Standing::Apart) {
            let _ = tokio::time::timeout(LOOKS, self.changed.notified()).await;
        }
    }

    /// Waits for a while, unless no claim here needs the bell.
    async fn pause(&self, inner: &Inner, time: Duration) {
        let _ = tokio::time::timeout(time, self.until_apart(inner)).await;
    }
}

/// Tends to a resource until the engine is closed.
async fn serve(inner: Arc<Inner>, post: Arc<Post>) {
    let Some(bells) = &inner.bells else { return };
    tokio::select! {
        () = bells.tend(&inner, &post) => {}
        () = inner.link.until_closed() => {}
    }
}

/// Asks how claims stand that wait.
async fn look(inner: &Inner, claims: &[Arc<Claim>]) {
    let looking = async { inner.look_at(&*inner.link.line().await?, claims, false).await };
    if let Err(error) = looking.await {
        tracing::debug!(%error, "how claims stand could not be asked");
    }
}

/// Whether nobody else can hold a resource beside one who holds it so.
fn is_alone(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Slot { of: 1 })
}

/// For how long one who is not first in line keeps a bell.
fn pause(misses: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_millis(25);
    (FIRST * 2_u32.pow(misses.min(4))).min(LONGEST)
}

/// Two resources may share a bell, and be woken a little too often.
fn name_of(source: &Source, namespace: &str, resource: &Name) -> String {
    format!("palisade.bell.{}.{:016x}", mark_of(source.as_str()), key_of(namespace, resource))
}
