use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Clock, Error, ErrorKind, Result, SystemClock};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use crate::config::ZooKeeperConfig;
use crate::conn::{Answer, Conn};
use crate::dial::dial;
use crate::error::{Code, closed, code_of, over};
use crate::greet::{Identity, greet};
use crate::life::Life;
use crate::proto::{Reply, Request, agree, op};

/// How servers are reached: the same for all sessions of a client.
pub(crate) struct Servers {
    pub(crate) config: ZooKeeperConfig,
    pub(crate) tls: Option<TlsConnector>,
    /// Where the next connection is tried.
    next: AtomicUsize,
}

impl Servers {
    pub(crate) fn new(config: ZooKeeperConfig) -> Result<Self> {
        let tls = config.tls.as_ref().map(crate::dial::connector).transpose()?;
        // Not all clients at the same server.
        let next = AtomicUsize::new(rand::random_range(0..config.servers.len().max(1)));
        Ok(Self { config, tls, next })
    }
}

/// One session with its connection, which is made again when it breaks, until the session is over.
pub(crate) struct Session {
    servers: Arc<Servers>,
    /// The timeout that was asked for.
    asked: Duration,
    identity: Mutex<Identity>,
    life: Mutex<Life>,
    state: watch::Sender<State>,
    /// The greatest transaction heard of: no server that is behind it will do.
    zxid: Arc<AtomicI64>,
    /// How many claims are on it.
    pub(crate) carries: AtomicUsize,
}

enum State {
    Down(String),
    Up(Arc<Conn>),
    /// It has ended, with all that was on it.
    Over,
    Closed,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a new session at any server.
    pub(crate) async fn open(servers: &Arc<Servers>, timeout: Duration) -> Result<Arc<Self>> {
        let zxid = Arc::new(AtomicI64::new(0));
        let mut problem = None;
        for _ in 0..servers.config.servers.len() {
            match connect(servers, &Identity::default(), timeout, 1, &zxid).await {
                Ok((conn, identity, timeout_in_force, sent)) => {
                    let session = Arc::new(Self {
                        servers: Arc::clone(servers),
                        asked: timeout,
                        identity: Mutex::new(identity),
                        life: Mutex::new(Life::new(timeout_in_force, sent)),
                        state: watch::Sender::new(State::Up(Arc::new(conn))),
                        zxid,
                        carries: AtomicUsize::new(0),
                    });
                    tokio::spawn(Arc::clone(&session).keep());
                    return Ok(session);
                }
                // What is wrong with us is wrong everywhere.
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => problem = Some(error),
            }
        }
        Err(problem.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "no server was named")))
    }

    pub(crate) fn id(&self) -> i64 {
        self.identity.lock().id
    }

    /// The timeout in force, as the server said.
    pub(crate) fn timeout(&self) -> Duration {
        self.life.lock().timeout()
    }

    /// Until when the servers honour it at least, on our clock.
    pub(crate) fn until(&self) -> BootInstant {
        self.life.lock().until()
    }

    /// The greatest transaction heard of.
    pub(crate) fn zxid(&self) -> i64 {
        self.zxid.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), State::Over | State::Closed)
    }

    /// The connection, once there is one.
    pub(crate) async fn conn(&self) -> Result<Arc<Conn>> {
        let ready = |state: &State| match state {
            State::Up(conn) => Some(Ok(Arc::clone(conn))),
            State::Over => Some(Err(over())),
            State::Closed => Some(Err(closed())),
            State::Down(_) => None,
        };
        if let Some(ready) = ready(&self.state.borrow()) {
            return ready;
        }
        let mut state = self.state.subscribe();
        let limit = self.servers.config.call_timeout;
        let up = tokio::time::timeout(limit, state.wait_for(|state| ready(state).is_some())).await;
        match up {
            Ok(Ok(state)) => ready(&state).unwrap_or_else(|| Err(closed())),
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(self.down()),
        }
    }

    fn down(&self) -> Error {
        let why = match &*self.state.borrow() {
            State::Down(why) => why.clone(),
            _ => "it came back just now".to_owned(),
        };
        Error::new(ErrorKind::Unavailable, format!("there is no connection: {why}"))
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&self, request: Request) -> Result<Reply> {
        let conn = self.conn().await?;
        self.answer(conn.send(request)).await
    }

    /// Waits for an answer; that it came tells something about the session.
    pub(crate) async fn answer(&self, answer: Answer) -> Result<Reply> {
        let (sent, agreed) = (answer.sent, answer.agreed);
        let reply = answer.come().await?;
        if !reply.code.ends_the_connection() {
            self.life.lock().answered(sent, agreed);
        }
        Ok(reply)
    }

    /// Has something agreed upon, to know that the session lives.
    pub(crate) async fn beat(&self) -> Result<BootInstant> {
        let conn = self.conn().await?;
        let answer = conn.send(agree());
        let sent = answer.sent;
        self.answer(answer).await?.ok()?;
        Ok(sent)
    }

    /// Completes once the connection with this number is out of service.
    pub(crate) async fn until_down(&self, number: u64) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| !matches!(state, State::Up(conn) if conn.number == number)).await;
    }

    /// Completes once the session is no more.
    pub(crate) async fn until_over(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| matches!(state, State::Over | State::Closed)).await;
    }

    /// Ends the session, which ends all that is on it; or lets it run out if that cannot be said.
    pub(crate) async fn close(&self, now: bool) {
        const PATIENCE: Duration = Duration::from_millis(500);
        let conn = match &*self.state.borrow() {
            State::Up(conn) => Some(Arc::clone(conn)),
            _ => None,
        };
        if let (Some(conn), true) = (&conn, now) {
            let bye =
                conn.send(Request { op: op::CLOSE, body: crate::jute::Writer::request(), agreed: true });
            let _ = tokio::time::timeout(PATIENCE, bye.come()).await;
        }
        self.state.send_replace(State::Closed);
        if let Some(conn) = conn {
            conn.end();
        }
    }

    /// Lets go of it without a word.
    pub(crate) fn abandon(&self) {
        if let State::Up(conn) = self.state.send_replace(State::Closed) {
            conn.end();
        }
    }

    /// Keeps the connection, and the session, until either is to end.
    async fn keep(self: Arc<Self>) {
        let mut number = 1;
        loop {
            let Ok(conn) = self.conn().await else { return };
            let code = tokio::select! {
                code = conn.ended() => code,
                () = self.attend(&conn) => Code::CONNECTION_LOSS,
                () = self.until_over() => return,
            };
            conn.end();
            let why = if code == Code::SESSION_EXPIRED {
                State::Over
            } else {
                State::Down(format!("{} is lost", conn.server))
            };
            let is_over = matches!(why, State::Over);
            drop(conn);
            if !self.becomes(why) || is_over {
                return;
            }
            number += 1;
            if !self.reconnect(number).await {
                return;
            }
        }
    }

    /// Changes the state, unless it was closed meanwhile.
    fn becomes(&self, new: State) -> bool {
        let mut new = Some(new);
        self.state.send_if_modified(|state| match (&state, new.take()) {
            (State::Closed, _) | (_, None) => false,
            (_, Some(new)) => {
                *state = new;
                true
            }
        })
    }

    /// Pings a quiet server, and leaves one that does not answer: there must be time for another before
    /// the session ends.
    async fn attend(&self, conn: &Conn) {
        const SHORTEST: Duration = Duration::from_millis(250);
        let timeout = self.timeout();
        let patience = (timeout / 4).min(self.servers.config.call_timeout / 2).max(SHORTEST);
        let (every, mut agreed, mut pinged) = (timeout / 8, SystemClock.now(), SystemClock.now());
        let mut beat = std::pin::pin!(futures::future::Fuse::terminated());
        loop {
            tokio::select! {
                () = tokio::time::sleep((timeout / 32).min(patience / 8)) => {}
                () = &mut beat, if !futures::future::FusedFuture::is_terminated(&beat) => {}
            }
            let now = SystemClock.now();
            if conn.silent_since().is_some_and(|since| since + patience < now) {
                tracing::debug!(server = conn.server, "no answer");
                return;
            }
            if let Some(sent) = conn.pinged() {
                self.life.lock().answered(sent, false);
            }
            let since = now.saturating_sub(every);
            let (heard, known) = self.life.lock().heard_since(since);
            // What else is asked for does as well; only who carries something needs to know more.
            let carries = self.carries.load(Ordering::Relaxed) > 0;
            if !heard && conn.silent_since().is_none() && pinged + every <= now {
                pinged = now;
                conn.ping();
            }
            if carries && !known && agreed + every <= now {
                agreed = now;
                let answer = conn.send(agree());
                beat.set(futures::FutureExt::fuse(async {
                    let _ = self.answer(answer).await;
                }));
            }
        }
    }

    /// Tries until the session goes on, with pauses in between; `false` if it is over.
    async fn reconnect(&self, number: u64) -> bool {
        const FIRST_PAUSE: Duration = Duration::from_millis(5);
        const LONGEST_PAUSE: Duration = Duration::from_millis(300);
        let mut pause = FIRST_PAUSE;
        loop {
            let identity = self.identity.lock().clone();
            let connected = tokio::select! {
                connected = connect(&self.servers, &identity, self.asked, number, &self.zxid) => connected,
                () = self.until_over() => return false,
            };
            match connected {
                Ok((conn, identity, _, sent)) => {
                    *self.identity.lock() = identity;
                    self.life.lock().resumed(sent);
                    let conn = Arc::new(conn);
                    let agreed = conn.send(agree());
                    if !self.becomes(State::Up(conn)) {
                        return false;
                    }
                    // Only then is it known that the servers still honour it.
                    let _ = self.answer(agreed).await;
                    return true;
                }
                Err(error) if code_of(&error) == Some(Code::SESSION_EXPIRED) => {
                    self.becomes(State::Over);
                    return false;
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection yet");
                    self.becomes(State::Down(error.to_string()));
                }
            }
            // Not all at the same moment: a server that comes back has enough to do.
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Connects to the next server, and begins or goes on with a session there.
async fn connect(
    servers: &Servers,
    identity: &Identity,
    timeout: Duration,
    number: u64,
    zxid: &Arc<AtomicI64>,
) -> Result<(Conn, Identity, Duration, BootInstant)> {
    let config = &servers.config;
    let at = servers.next.fetch_add(1, Ordering::Relaxed) % config.servers.len();
    let server = &config.servers[at];
    let arriving = async {
        let mut wire = dial(config, servers.tls.as_ref(), server).await?;
        let sent = SystemClock.now();
        let seen = zxid.load(Ordering::Relaxed);
        let (identity, granted) = greet(config, server, &mut wire, identity, timeout, seen).await?;
        Ok((Conn::serve(number, server, wire, zxid), identity, granted, sent))
    };
    // A session must not end while one server is waited for that does not answer.
    let limit = config.connect_timeout.min((timeout / 4).max(Duration::from_millis(250)));
    let limit = if identity.id == 0 { config.connect_timeout } else { limit };
    tokio::time::timeout(limit, arriving).await.unwrap_or_else(|_| {
        let message =
            format!("{server} did not answer within {limit:?}; is it ZooKeeper, and has it a leader?");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}
