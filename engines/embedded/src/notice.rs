use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::session::{SessionId, Sessions};
use crate::shared::Shared;

/// What the kernel tells: that a session has ended, that a file was written.
///
/// A session's lock file is closed by the kernel however its process ends, and `IN_CLOSE_WRITE`
/// comes with the last copy of the descriptor, those of children included. Each engine has one
/// inotify instance, made when someone first waits or watches.
#[derive(Debug)]
pub(crate) struct Notices {
    state: Mutex<State>,
    /// Counts writes to the files that are watched.
    pub(crate) changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    instance: Instance,
    sessions: HashMap<SessionId, Watched>,
    by_number: HashMap<i32, SessionId>,
    /// How many follow each file.
    followers: HashMap<i32, usize>,
    task: Option<tokio::task::AbortHandle>,
}

#[derive(Debug, Default)]
enum Instance {
    #[default]
    NotYet,
    /// The user has too many already; those who wait look again from time to time.
    Exhausted,
    Open(Arc<AsyncFd<OwnedFd>>),
}

#[derive(Debug)]
struct Watched {
    number: i32,
    users: usize,
}

impl Notices {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// Watches a session for as long as the tie is kept. `None` if the kernel will not tell; the
    /// caller must look by itself. Sessions may have ended before: ask after tying.
    pub(crate) fn tie(self: &Arc<Self>, shared: &Arc<Shared>, session: SessionId) -> Option<Tie> {
        let mut state = self.state.lock();
        let instance = state.open(shared)?;
        if let Some(watched) = state.sessions.get_mut(&session) {
            watched.users += 1;
        } else {
            let path = shared.sessions.lock_path(session);
            let number = match watch_closing(&instance, &path) {
                Ok(number) => number,
                // It has ended and was cleaned away.
                Err(problem) if problem.kind() == io::ErrorKind::NotFound => -1,
                Err(problem) => {
                    tracing::warn!(%problem, "cannot watch a session; looking at it from time to time instead");
                    return None;
                }
            };
            state.by_number.insert(number, session);
            state.sessions.insert(session, Watched { number, users: 1 });
        }
        Some(Tie { notices: Arc::clone(self), session })
    }

    /// Counts writes to the file at `path` among the changes for as long as the following is kept.
    /// `None` if the kernel will not tell.
    pub(crate) fn follow(self: &Arc<Self>, shared: &Arc<Shared>, path: &Path) -> Option<Following> {
        let mut state = self.state.lock();
        let instance = state.open(shared)?;
        let number = inotify::add_watch(instance.get_ref(), path, WatchFlags::MODIFY)
            .inspect_err(|problem| tracing::warn!(%problem, "cannot follow a file; looking at it from time to time instead"))
            .ok()?;
        // The kernel has one watch for a file, however often it is asked.
        *state.followers.entry(number).or_default() += 1;
        Some(Following { notices: Arc::clone(self), number })
    }

    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        if let Some(task) = state.task.take() {
            task.abort();
        }
        state.instance = Instance::Exhausted;
    }

    /// How many watches the kernel keeps for this engine.
    #[cfg(test)]
    pub(crate) fn kernel_watches(&self) -> usize {
        use std::os::fd::AsRawFd;
        let state = self.state.lock();
        let Instance::Open(instance) = &state.instance else { return 0 };
        let path = format!("/proc/self/fdinfo/{}", instance.get_ref().as_raw_fd());
        let info = std::fs::read_to_string(path).unwrap_or_default();
        info.lines().filter(|line| line.starts_with("inotify ")).count()
    }

    fn session_of(&self, number: i32) -> Option<SessionId> {
        self.state.lock().by_number.get(&number).copied()
    }

    fn all_sessions(&self) -> Vec<SessionId> {
        self.state.lock().sessions.keys().copied().collect()
    }
}

impl State {
    fn open(&mut self, shared: &Arc<Shared>) -> Option<Arc<AsyncFd<OwnedFd>>> {
        match &self.instance {
            Instance::Open(instance) => return Some(Arc::clone(instance)),
            Instance::Exhausted => return None,
            Instance::NotYet => {}
        }
        let _inside = shared.runtime.enter();
        match make_instance() {
            Ok(instance) => {
                let instance = Arc::new(instance);
                let listening = listen(Arc::clone(&instance), Arc::downgrade(shared));
                self.task = Some(shared.runtime.spawn(listening).abort_handle());
                self.instance = Instance::Open(Arc::clone(&instance));
                Some(instance)
            }
            Err(problem) => {
                tracing::warn!(%problem, "no inotify instance left (fs.inotify.max_user_instances); looking every 250 ms instead");
                self.instance = Instance::Exhausted;
                None
            }
        }
    }
}

fn make_instance() -> io::Result<AsyncFd<OwnedFd>> {
    let instance = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    // Deprecated because a type could lie about its descriptor (tokio#8587), for an unsafe function
    // that makes the caller promise it does not. An `OwnedFd` cannot lie.
    #[allow(deprecated, reason = "sound for an OwnedFd, and this crate forbids unsafe code")]
    AsyncFd::new(instance)
}

/// Keeps a session watched.
#[derive(Debug)]
pub(crate) struct Tie {
    notices: Arc<Notices>,
    session: SessionId,
}

impl Drop for Tie {
    fn drop(&mut self) {
        let mut state = self.notices.state.lock();
        let Some(watched) = state.sessions.get_mut(&self.session) else { return };
        watched.users -= 1;
        if watched.users > 0 {
            return;
        }
        let number = watched.number;
        state.sessions.remove(&self.session);
        state.by_number.remove(&number);
        if let Instance::Open(instance) = &state.instance {
            // Fails if the file is gone, and the watch with it.
            let _ = inotify::remove_watch(instance.get_ref(), number);
        }
    }
}

/// Keeps a file followed.
#[derive(Debug)]
pub(crate) struct Following {
    notices: Arc<Notices>,
    number: i32,
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut state = self.notices.state.lock();
        let Some(count) = state.followers.get_mut(&self.number) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        state.followers.remove(&self.number);
        if let Instance::Open(instance) = &state.instance {
            // Fails if the file is gone, and the watch with it.
            let _ = inotify::remove_watch(instance.get_ref(), self.number);
        }
    }
}

fn watch_closing(instance: &AsyncFd<OwnedFd>, path: &Path) -> io::Result<i32> {
    let events = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF;
    Ok(inotify::add_watch(instance.get_ref(), path, events)?)
}

async fn listen(instance: Arc<AsyncFd<OwnedFd>>, shared: Weak<Shared>) {
    loop {
        let Ok(mut ready) = instance.readable().await else { return };
        let Some(shared) = shared.upgrade() else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(instance.get_ref(), &mut buffer);
        let mut written = false;
        loop {
            match events.next() {
                Ok(event) => written |= handle(&shared, event.wd(), event.events()),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        ready.clear_ready();
        if written {
            shared.notices.changes.send_modify(|count| *count += 1);
        }
    }
}

/// Acts on one event; whether it was a write to a file that is followed.
fn handle(shared: &Arc<Shared>, number: i32, events: ReadFlags) -> bool {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        // Some were lost: ask about everyone, and look at everything.
        shared.waiters.tell_all();
        for session in shared.notices.all_sessions() {
            shared.spawn_reaping(session);
        }
        return true;
    }
    if let Some(session) = shared.notices.session_of(number)
        && events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::DELETE_SELF)
    {
        shared.spawn_reaping(session);
    }
    events.contains(ReadFlags::MODIFY)
}

/// Waits until a session that just closed its lock file is seen to be over, but not longer than
/// `limit`.
///
/// The kernel tells of the close a moment before it drops the lock, so that the first look may
/// come too early.
pub(crate) async fn is_over_within(sessions: &Sessions, session: SessionId, limit: Duration) -> bool {
    const YIELDS: usize = 200;
    const LONGEST_NAP: Duration = Duration::from_millis(100);
    for _ in 0..YIELDS {
        if sessions.is_dead(session) {
            return true;
        }
        tokio::task::yield_now().await;
    }
    let (start, mut nap) = (Instant::now(), Duration::from_millis(1));
    while start.elapsed() < limit {
        tokio::time::sleep(nap).await;
        if sessions.is_dead(session) {
            return true;
        }
        nap = LONGEST_NAP.min(nap + nap / 8 + Duration::from_micros(100));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_that_goes_late_is_waited_for_and_one_that_stays_is_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(folder.path().to_owned());
        let (id, file) = sessions.start().unwrap();
        assert!(!is_over_within(&sessions, id, Duration::from_millis(20)).await);
        let ends = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(file);
        };
        let over = is_over_within(&sessions, id, Duration::from_secs(10));
        assert!(futures::future::join(over, ends).await.0);
    }
}
