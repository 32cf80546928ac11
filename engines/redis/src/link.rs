use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Clock, Error, ErrorKind, Result, SystemClock};
use redis::{RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::counter::Counter;
use crate::dial::Line;
use crate::error::{closed, failed};
use crate::script::Call;
use crate::wire::Wire;

/// The connection of an engine: one at a time, made again by `crate::engine`'s task when it breaks.
pub(crate) struct Link {
    state: watch::Sender<State>,
    /// Milliseconds since the link was made at which the server was last heard.
    heard: AtomicU64,
    /// How many calls wait for an answer.
    calls: AtomicU64,
    made: Instant,
    call_timeout: Duration,
}

enum State {
    /// There is no connection, because of this.
    Down(String),
    /// Dropping `life` tells whoever waits for an answer that none will come.
    Up {
        number: u64,
        line: Line,
        life: watch::Sender<()>,
        counter: Arc<Counter>,
    },
    Closed,
}

/// A connection as a call has it.
pub(crate) struct InUse {
    pub(crate) number: u64,
    pub(crate) line: Line,
    /// None for a line that tells its own end.
    life: Option<watch::Receiver<()>>,
    pub(crate) counter: Arc<Counter>,
}

impl InUse {
    /// Whether tokens need only be counted on.
    pub(crate) fn counts(&self) -> bool {
        // A Cluster changes servers on its own.
        self.counter.is_ahead() && self.line.is_to_one()
    }
}

/// An answer with what it takes to make sense of it.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// Just before the request was sent.
    pub(crate) sent: BootInstant,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(call_timeout: Duration) -> Self {
        Self {
            state: watch::Sender::new(State::Down("it was never made".to_owned())),
            heard: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            made: Instant::now(),
            call_timeout,
        }
    }

    /// Calls a script, with its whole text if the server does not know its hash.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Answer> {
        self.call_over(&mut self.line().await?, call).await
    }

    /// The same over a connection that the call was made for.
    pub(crate) async fn call_over(&self, in_use: &mut InUse, call: &Call<'_>) -> Result<Answer> {
        let sent = SystemClock.now();
        let answer = match self.send(in_use, &call.by_hash).await {
            Err(error) if is_no_script(&error) => self.send(in_use, &call.by_text()).await,
            answer => answer,
        };
        self.judge(in_use.number, answer).map(|value| Answer { value, sent })
    }

    /// Sends a command.
    pub(crate) async fn command(&self, command: &redis::Cmd) -> Result<Answer> {
        let mut in_use = self.line().await?;
        let sent = SystemClock.now();
        let answer = self.send(&mut in_use, command).await;
        self.judge(in_use.number, answer).map(|value| Answer { value, sent })
    }

    /// Sends commands with nothing of anyone else's in between.
    pub(crate) async fn together(&self, commands: &redis::Pipeline) -> Result<Value> {
        let InUse { number, mut line, mut life, .. } = self.line().await?;
        let answer = self.answered(&mut life, line.send_together(commands)).await;
        self.judge(number, answer)
    }

    /// Sends so many commands that `write` packs, with nothing of anyone else's in between. Their answers, each of
    /// which may be an error of the server's, and just before they were sent.
    pub(crate) async fn packed(
        &self,
        number: u64,
        wire: &Wire,
        count: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(Vec<Value>, BootInstant)> {
        let sent = SystemClock.now();
        let answers = self.answered(&mut None, wire.send_all(count, write)).await;
        self.judge(number, answers).map(|answers| (answers, sent))
    }

    async fn send(&self, in_use: &mut InUse, command: &redis::Cmd) -> RedisResult<Value> {
        let InUse { line, life, .. } = in_use;
        self.answered(life, line.send(command)).await
    }

    /// The answer, unless the connection ends before it comes: its own end may never be noticed.
    async fn answered<T>(
        &self,
        life: &mut Option<watch::Receiver<()>>,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let _counted = Counted::new(self);
        let answer = match life {
            None => answer.await,
            Some(life) => tokio::select! {
                biased;
                answer = answer => answer,
                _ = life.changed() => Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()),
            },
        };
        if answer.is_ok() {
            self.heard.store(self.made.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        answer
    }

    /// What an answer comes to; the connection ends with some errors.
    pub(crate) fn judge<T>(&self, number: u64, answer: RedisResult<T>) -> Result<T> {
        answer.map_err(|error| {
            if ends_the_line(&error) {
                self.broken(number, &error.to_string());
            }
            failed(error)
        })
    }

    /// The connection, once there is one.
    pub(crate) async fn line(&self) -> Result<InUse> {
        if let Some(in_use) = self.state.borrow().in_use() {
            return Ok(in_use);
        }
        // Boxed, because it is rare, and every call would have to make room for it.
        Box::pin(self.until_there_is_one()).await
    }

    async fn until_there_is_one(&self) -> Result<InUse> {
        let mut state = self.state.subscribe();
        let up = state.wait_for(|state| !matches!(state, State::Down(_)));
        match tokio::time::timeout(self.call_timeout, up).await {
            Ok(Ok(state)) => state.in_use().ok_or_else(closed),
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(self.down()),
        }
    }

    fn down(&self) -> Error {
        let why = match &*self.state.borrow() {
            State::Down(why) => why.clone(),
            State::Up { .. } | State::Closed => "it came back just now".to_owned(),
        };
        Error::new(ErrorKind::Unavailable, format!("there is no connection: {why}"))
    }

    /// Puts a new connection into service. Fails if the link was closed meanwhile.
    pub(crate) fn up(&self, number: u64, line: Line, counter: Counter) -> bool {
        self.state.send_if_modified(|state| {
            if matches!(state, State::Closed) {
                return false;
            }
            *state = State::Up { number, line, life: watch::Sender::new(()), counter: Arc::new(counter) };
            true
        })
    }

    /// Takes a connection out of service, if it is still the present one.
    pub(crate) fn broken(&self, number: u64, why: &str) {
        self.state.send_if_modified(|state| match state {
            State::Up { number: current, line, .. } if *current == number => {
                line.close();
                *state = State::Down(why.to_owned());
                true
            }
            _ => false,
        });
    }

    /// Notes why the connection could not be made again.
    pub(crate) fn still_down(&self, why: &str) {
        self.state.send_if_modified(|state| match state {
            State::Down(current) => {
                why.clone_into(current);
                false
            }
            _ => false,
        });
    }

    pub(crate) fn close(&self) {
        if let State::Up { line, .. } = self.state.send_replace(State::Closed) {
            line.close();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(*self.state.borrow(), State::Closed)
    }

    /// Completes once connection `number` is out of service.
    pub(crate) async fn until_down(&self, number: u64) {
        let mut state = self.state.subscribe();
        let _ = state
            .wait_for(|state| !matches!(state, State::Up { number: current, .. } if *current == number))
            .await;
    }

    /// Completes once there is a connection. An error if there never will be.
    pub(crate) async fn until_up(&self) -> Result<()> {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| !matches!(state, State::Down(_))).await.as_deref() {
            Ok(State::Up { .. }) => Ok(()),
            _ => Err(closed()),
        }
    }

    /// Completes once the link is closed.
    pub(crate) async fn until_closed(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| matches!(state, State::Closed)).await;
    }

    /// Watches over a connection: whoever waits for an answer or a message would not notice a silent
    /// end. Completes once the server does not answer in time.
    pub(crate) async fn watch_over(&self, mut line: Line, in_use: impl Fn() -> bool) {
        let limit = (self.call_timeout / 2).clamp(Duration::from_millis(20), Duration::from_secs(2));
        let mut looks = tokio::time::interval((limit / 2).max(Duration::from_millis(10)));
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let heard = self.heard.load(Ordering::Relaxed);
            let silent = (self.made.elapsed().as_millis() as u64).saturating_sub(heard);
            let lately = u128::from(silent) < (limit / 2).as_millis();
            if lately || !(in_use() || self.calls.load(Ordering::Relaxed) > 0) {
                continue;
            }
            let ping = redis::cmd("PING");
            match tokio::time::timeout(limit, line.send(&ping)).await {
                Ok(Ok(_)) => {
                    self.heard.store(self.made.elapsed().as_millis() as u64, Ordering::Relaxed);
                }
                // It says no, but it says something.
                Ok(Err(error)) if error.code().is_some() && !ends_the_line(&error) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

impl State {
    fn in_use(&self) -> Option<InUse> {
        let Self::Up { number, line, life, counter } = self else { return None };
        let life = (!matches!(line, Line::Plain(_))).then(|| life.subscribe());
        Some(InUse { number: *number, line: line.clone(), life, counter: Arc::clone(counter) })
    }
}

/// Counts a call for as long as it waits.
struct Counted<'a>(&'a Link);

impl<'a> Counted<'a> {
    fn new(link: &'a Link) -> Self {
        link.calls.fetch_add(1, Ordering::Relaxed);
        Self(link)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the connection is of no use any more: broken, or to a server that decides nothing.
fn ends_the_line(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_connection_dropped()
        || error.kind() == redis::ErrorKind::Server(ServerErrorKind::ReadOnly)
        // As Redis 6.2 says it from inside a script.
        || error.detail().is_some_and(|detail| detail.contains("READONLY"))
}
