use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use palisade_core::{
    ClaimId, Clock, ConnectionState, Error, ErrorKind, Name, Profile, Result, Source, SystemClock,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::config::RemoteConfig;
use super::link::{Link, NoAnswer, Pace, Welcome};
use super::notes::Notes;
use super::wire::{Answer, Ask, Stamp};

/// One client of a server; see [`crate::remote`].
///
/// It has one connection at a time, and makes a new one when a call needs it. What was under way
/// on a connection that broke fails with an unknown effect, but for waits, which go on.
#[derive(Debug)]
pub struct RemoteEngine(pub(super) Arc<Inner>);

/// What the engine shares with its watches.
#[derive(Debug)]
pub(super) struct Inner {
    config: RemoteConfig,
    /// Tells the server who is back.
    session: String,
    pub(super) profile: Profile,
    pub(super) source: Source,
    pub(super) notes: Arc<Notes>,
    /// Connections live here, also when a call comes from another runtime.
    runtime: Handle,
    link: Mutex<Option<Arc<Link>>>,
    dialing: tokio::sync::Mutex<()>,
    /// Why this value can never be used again: the server behind the address counts other tokens.
    mismatch: OnceLock<String>,
}

/// An answer with what it takes to make sense of it.
pub(super) struct Answered {
    pub(super) answer: Answer,
    /// Just before the request was sent.
    pub(super) sent: Stamp,
    pub(super) link: Arc<Link>,
    pub(super) id: u64,
}

impl RemoteEngine {
    /// Connects to the server at `address`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nobody answers in time.
    pub async fn connect(address: SocketAddr, namespace: &str) -> Result<Self> {
        Self::open(RemoteConfig::new(address, namespace)).await
    }

    /// Connects as `config` says.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nobody answers in time, [`ErrorKind::Invalid`] for a namespace
    /// that is none.
    pub async fn open(config: RemoteConfig) -> Result<Self> {
        if !config.namespace.is_empty() {
            Name::new(&config.namespace)?;
        }
        let runtime = Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Invalid, "a remote engine is opened inside a tokio runtime").because(error)
        })?;
        let notes = Arc::new(Notes::new());
        let session = ClaimId::random().to_string();
        let hello =
            Ask::Hello { session: session.clone(), namespace: config.namespace.clone(), held: vec![] };
        let opened = Link::open(config.address, hello, config.limits(), Arc::clone(&notes)).await;
        let (link, welcome) = opened.map_err(|error| unreachable(&config, error))?;
        Ok(Self(Arc::new(Inner {
            config,
            session,
            profile: super::profile(),
            source: Source::new(welcome.source),
            notes,
            runtime,
            link: Mutex::new(Some(Arc::new(link))),
            dialing: tokio::sync::Mutex::default(),
            mismatch: OnceLock::new(),
        })))
    }
}

fn unreachable(config: &RemoteConfig, error: std::io::Error) -> Error {
    let message = format!("the server at {} cannot be reached", config.address);
    Error::new(ErrorKind::Unavailable, message).because(error)
}

impl Inner {
    /// Asks something that is answered at once.
    pub(super) async fn ask(&self, make: impl Fn() -> Ask + Send) -> Result<Answered> {
        self.ask_at(make, Pace::AtOnce).await?.ok_or_else(|| self.lost())
    }

    /// Asks; `None` if the connection ended before the answer came.
    pub(super) async fn ask_at(&self, make: impl Fn() -> Ask + Send, pace: Pace) -> Result<Option<Answered>> {
        let deadline = Instant::now() + self.config.call_timeout.min(Duration::from_hours(24));
        loop {
            let link = self.connected(deadline).await?;
            let sent = Stamp(SystemClock.now());
            match link.ask(make(), pace).await {
                Ok((id, Ok(answer))) => return Ok(Some(Answered { answer, sent, link, id })),
                Ok((_, Err(failure))) => return Err(failure.into()),
                Err(NoAnswer::Impossible(error)) => return Err(error),
                Err(NoAnswer::Lost) => return Ok(None),
                // It broke just now. Nothing was sent, so that another one will do.
                Err(NoAnswer::NotSent) => {}
            }
        }
    }

    /// The error of a call whose connection ended before its answer came.
    pub(super) fn lost(&self) -> Error {
        let error = if self.notes.is_closed() {
            closed()
        } else {
            Error::new(ErrorKind::Unavailable, "the connection was lost before the answer came")
        };
        error.with_unknown_effect()
    }

    /// The connection, a new one if need be.
    async fn connected(&self, deadline: Instant) -> Result<Arc<Link>> {
        self.check_open()?;
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let mut ended = self.notes.closed.subscribe();
        tokio::select! {
            biased;
            _ = ended.wait_for(|closed| *closed) => Err(closed()),
            link = self.dial(deadline) => link,
            () = tokio::time::sleep_until(deadline) => {
                Err(unreachable(&self.config, std::io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn check_open(&self) -> Result<()> {
        match self.mismatch.get() {
            _ if self.notes.is_closed() => Err(closed()),
            Some(other) => Err(self.another_server(other)),
            None => Ok(()),
        }
    }

    fn current(&self) -> Option<Arc<Link>> {
        self.link.lock().as_ref().filter(|link| link.is_alive()).map(Arc::clone)
    }

    /// Makes a new connection, one at a time, with short pauses between tries.
    async fn dial(&self, deadline: Instant) -> Result<Arc<Link>> {
        const FIRST_PAUSE: Duration = Duration::from_millis(5);
        const LONGEST_PAUSE: Duration = Duration::from_millis(200);
        let _dialing = self.dialing.lock().await;
        let mut pause = FIRST_PAUSE;
        loop {
            self.check_open()?;
            if let Some(link) = self.current() {
                return Ok(link);
            }
            match self.try_dial().await {
                Ok((link, welcome)) => return self.enter(link, welcome),
                Err(error) if Instant::now() + pause >= deadline => {
                    return Err(unreachable(&self.config, error));
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_dial(&self) -> std::io::Result<(Link, Welcome)> {
        let hello = Ask::Hello {
            session: self.session.clone(),
            namespace: self.config.namespace.clone(),
            held: self.notes.held(),
        };
        let opening = Link::open(self.config.address, hello, self.config.limits(), Arc::clone(&self.notes));
        self.runtime.spawn(opening).await.map_err(std::io::Error::other)?
    }

    fn enter(&self, link: Link, welcome: Welcome) -> Result<Arc<Link>> {
        if welcome.source != self.source.as_str() {
            // Tokens of old guards must never be compared with those of the new server.
            if self.mismatch.set(welcome.source.clone()).is_ok() {
                self.notes.connection(ConnectionState::Lost);
            }
            return Err(self.another_server(&welcome.source));
        }
        for (claim, reason) in welcome.gone {
            self.notes.gone(&claim, reason);
        }
        let link = Arc::new(link);
        let mut current = self.link.lock();
        // Under the lock: whoever closes from here on sees the connection, and ends it.
        self.check_open()?;
        *current = Some(Arc::clone(&link));
        self.notes.connection(ConnectionState::Reconnected);
        Ok(link)
    }

    fn another_server(&self, other: &str) -> Error {
        let message = format!(
            "the server at {} counts tokens of {other}, this connection those of {}; connect anew",
            self.config.address, self.source
        );
        Error::new(ErrorKind::SourceMismatch, message)
    }

    pub(super) fn close(&self) {
        if !self.notes.is_closed() {
            self.notes.connection(ConnectionState::Lost);
            self.notes.closed.send_replace(true);
        }
        // Ended, not only dropped: calls that are under way hold on to it.
        if let Some(link) = self.link.lock().take() {
            link.end();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the connection was closed")
}

/// The error for an answer to another question.
pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::Corrupt, "the server answered something else").with_unknown_effect()
}
