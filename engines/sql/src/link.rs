use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Error, ErrorKind, Result, Source};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::closed;
use crate::server::{Facts, Line, Settings};

/// The connections of an engine. They come and go together, made again by `crate::keeper` when they break.
pub(crate) struct Link {
    state: watch::Sender<State>,
    call_timeout: Duration,
}

enum State {
    /// There is no connection, because of this.
    Down(String),
    Up(Arc<Lines>),
    Closed,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// One connection that is always there, and a few more while there is much to do: a server commits for several at
/// once, but each connection has one thing done after the other.
#[derive(Debug)]
pub(crate) struct Lines {
    config: Settings,
    named: bool,
    /// Whom all of them must lead to, and since when that one has remembered what it granted.
    source: Source,
    forgot_at: BootInstant,
    first: Arc<Line>,
    more: Mutex<Vec<Arc<Line>>>,
    opening: AtomicBool,
}

impl Lines {
    const MOST: usize = 4;
    /// How much later than it was true one may be told since when a server has remembered everything.
    const TOLD_LATE: Duration = Duration::from_secs(10);

    pub(crate) fn new(config: &Settings, named: bool, first: Line, facts: &Facts) -> Arc<Self> {
        let more = Mutex::default();
        let lines = Arc::new(Self {
            config: config.clone(),
            named,
            source: facts.source.clone(),
            forgot_at: facts.forgot_at,
            first: Arc::new(first),
            more,
            opening: AtomicBool::new(false),
        });
        let first = Arc::clone(&lines.first);
        tokio::spawn(async move { first.warm().await });
        lines
    }

    pub(crate) fn first(&self) -> &Arc<Line> {
        &self.first
    }

    /// All connections there are.
    pub(crate) fn all(&self) -> Vec<Arc<Line>> {
        let more = self.more.lock();
        [&self.first].into_iter().chain(more.iter()).map(Arc::clone).collect()
    }

    /// The connection with the least to do, if possible not one that waits for something to be done.
    fn pick(self: &Arc<Self>) -> Arc<Line> {
        const STUCK: Duration = Duration::from_millis(100);
        if self.first.calls() == 0 && !self.first.has_ended() {
            return Arc::clone(&self.first);
        }
        let mut more = self.more.lock();
        more.retain(|line| !line.has_ended());
        let lines = [&self.first].into_iter().chain(more.iter());
        let load = |line: &&Arc<Line>| (line.has_ended(), line.stuck() >= STUCK, line.calls());
        let best = lines.min_by_key(load).unwrap_or(&self.first);
        // One that is refused and tried again is heard of each time, and holds up what comes behind it all the same.
        if (best.calls() >= self.config.server.busy() || best.has_ended() || best.busy() >= STUCK)
            && more.len() + 1 < Self::MOST
            && !self.opening.swap(true, Ordering::Relaxed)
        {
            tokio::spawn(Arc::clone(self).open_another());
        }
        Arc::clone(best)
    }

    /// A connection that does not wait for what `line` waits for: one of these, or a new one.
    pub(crate) async fn beside(&self, line: &Line, limit: Duration) -> Result<Arc<Line>> {
        let others = self.all();
        let others = others.into_iter().filter(|other| !std::ptr::eq(&raw const **other, line));
        let others = others.filter(|other| !other.has_ended() && other.stuck() < limit);
        if let Some(other) = others.min_by_key(|other| other.calls()) {
            return Ok(other);
        }
        let new = Arc::new(self.dial_the_same().await?);
        let mut more = self.more.lock();
        if more.len() + 1 < Self::MOST {
            more.push(Arc::clone(&new));
        }
        Ok(new)
    }

    /// Completes once none is left.
    pub(crate) async fn ended(&self) {
        loop {
            let alive = self.all().into_iter().find(|line| !line.has_ended());
            match alive {
                Some(line) => line.ended().await,
                None => return,
            }
        }
    }

    async fn open_another(self: Arc<Self>) {
        const PAUSE: Duration = Duration::from_secs(1);
        match self.dial_the_same().await {
            Ok(line) => {
                if tokio::time::timeout(self.config.connect_timeout, line.warm()).await.is_ok() {
                    self.more.lock().push(Arc::new(line));
                }
            }
            Err(error) => {
                // It goes on with those there are.
                tracing::debug!(%error, "no further connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.opening.store(false, Ordering::Relaxed);
    }

    /// A connection to the same server: behind a name that moves, the next one may lead elsewhere.
    async fn dial_the_same(&self) -> Result<Line> {
        let line = self.config.server.dial(self.named).await?;
        let limit = self.config.connect_timeout * 3;
        let facts = tokio::time::timeout(limit, self.config.server.arrive(&line)).await;
        let facts = facts.map_err(|_| Error::new(ErrorKind::Unavailable, "the server did not answer"))??;
        // A promoted one has the same name, and may have forgotten what was granted last.
        if facts.source == self.source && facts.forgot_at <= self.forgot_at + Self::TOLD_LATE {
            return Ok(line);
        }
        Err(Error::new(ErrorKind::Unavailable, "another server answers"))
    }

    fn end(&self) {
        self.all().iter().for_each(|line| line.end());
    }
}

impl Link {
    pub(crate) fn new(call_timeout: Duration) -> Self {
        Self { state: watch::Sender::new(State::Down("it was never made".to_owned())), call_timeout }
    }

    /// A connection, once there is one.
    pub(crate) async fn line(&self) -> Result<Arc<Line>> {
        if let State::Up(lines) = &*self.state.borrow() {
            return Ok(lines.pick());
        }
        let mut state = self.state.subscribe();
        let up = state.wait_for(|state| !matches!(state, State::Down(_)));
        match tokio::time::timeout(self.call_timeout, up).await {
            Ok(Ok(state)) => match &*state {
                State::Up(lines) => Ok(lines.pick()),
                _ => Err(closed()),
            },
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(self.down()),
        }
    }

    fn down(&self) -> Error {
        let why = match &*self.state.borrow() {
            State::Down(why) => why.clone(),
            State::Up(_) | State::Closed => "it came back just now".to_owned(),
        };
        Error::new(ErrorKind::Unavailable, format!("there is no connection: {why}"))
    }

    /// Puts new connections into service. Fails if the link was closed meanwhile.
    pub(crate) fn up(&self, lines: &Arc<Lines>) -> bool {
        self.state.send_if_modified(|state| {
            if matches!(state, State::Closed) {
                return false;
            }
            *state = State::Up(Arc::clone(lines));
            true
        })
    }

    /// Takes all connections out of service, with everything that is under way on them.
    pub(crate) fn broken(&self, why: &str) {
        self.state.send_if_modified(|state| match state {
            State::Up(lines) => {
                lines.end();
                *state = State::Down(why.to_owned());
                true
            }
            _ => false,
        });
    }

    /// Notes why no connection could be made.
    pub(crate) fn still_down(&self, why: &str) {
        self.state.send_if_modified(|state| {
            if let State::Down(current) = state {
                why.clone_into(current);
            }
            false
        });
    }

    pub(crate) fn close(&self) {
        if let State::Up(lines) = self.state.send_replace(State::Closed) {
            lines.end();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(*self.state.borrow(), State::Closed)
    }

    /// Completes once there is a connection. An error if there never will be.
    pub(crate) async fn until_up(&self) -> Result<()> {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| !matches!(state, State::Down(_))).await.as_deref() {
            Ok(State::Up(_)) => Ok(()),
            _ => Err(closed()),
        }
    }

    /// Completes once the link is closed.
    pub(crate) async fn until_closed(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| matches!(state, State::Closed)).await;
    }
}
