use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{BootInstant, Clock, Error, ErrorKind, Result, SystemClock};
use prost::Message;
use tokio::sync::watch;
use tonic::Status;

use crate::dial::Line;
use crate::error::{closed, ends_the_line, failed, went_unanswered};
use crate::proto::{Headed, RangeRequest, RangeResponse, TxnResponse, path};
use crate::txn::Txn;

/// The connection of an engine: one at a time, made again by `crate::engine`'s task when it breaks.
pub(crate) struct Link {
    state: watch::Sender<State>,
    /// The greatest revision seen.
    seen: AtomicI64,
    /// When an answer came last, in nanoseconds.
    heard: AtomicU64,
    call_timeout: Duration,
}

enum State {
    /// There is no connection, because of this.
    Down(String),
    /// Dropping `life` tells whoever waits for an answer that none will come.
    Up {
        number: u64,
        line: Arc<Line>,
        life: watch::Sender<()>,
    },
    Closed,
}

/// A connection as a call has it.
#[derive(Clone)]
pub(crate) struct InUse {
    pub(crate) number: u64,
    pub(crate) line: Arc<Line>,
    life: watch::Receiver<()>,
}

/// An answer with what it takes to make sense of it.
#[derive(Debug)]
pub(crate) struct Answer<A> {
    pub(crate) value: A,
    /// Just before the request was sent.
    pub(crate) sent: BootInstant,
    /// At which revision it was given.
    pub(crate) revision: i64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(call_timeout: Duration) -> Self {
        let state = watch::Sender::new(State::Down("it was never made".to_owned()));
        Self { state, seen: AtomicI64::new(0), heard: AtomicU64::new(0), call_timeout }
    }

    pub(crate) async fn txn(&self, txn: Txn) -> Result<Answer<TxnResponse>> {
        self.call(path::TXN, txn.request()).await
    }

    /// A transaction that changes nothing.
    pub(crate) async fn look(&self, txn: Txn) -> Result<Answer<TxnResponse>> {
        self.ask(path::TXN, txn.request()).await
    }

    pub(crate) async fn range(&self, range: RangeRequest) -> Result<Answer<RangeResponse>> {
        self.ask(path::RANGE, range).await
    }

    /// Asks for what changes nothing, over the next connection if this one ends first: be it because a keep-alive got
    /// no answer in time and *we* left it. Whoever asks has more time than that.
    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<Answer<A>>
    where
        Q: Message + Clone + 'static,
        A: Message + Headed + Default + 'static,
    {
        let until = SystemClock.now() + self.call_timeout;
        loop {
            match self.call(path, message.clone()).await {
                Err(error) if went_unanswered(&error) && SystemClock.now() < until => {}
                answer => return answer,
            }
        }
    }

    /// The same over connection `number`, and no other.
    pub(crate) async fn txn_over(&self, number: u64, txn: Txn) -> Result<TxnResponse> {
        Ok(self.call_over(&self.numbered(number).await?, path::TXN, txn.request()).await?.value)
    }

    /// The same over connection `number`, and no other.
    pub(crate) async fn range_over(&self, number: u64, range: RangeRequest) -> Result<RangeResponse> {
        Ok(self.call_over(&self.numbered(number).await?, path::RANGE, range).await?.value)
    }

    async fn numbered(&self, number: u64) -> Result<InUse> {
        let in_use = self.line().await?;
        if in_use.number != number {
            return Err(Error::new(ErrorKind::Unavailable, "the connection was lost"));
        }
        Ok(in_use)
    }

    /// Sends a request over the present connection, or the next one.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<Answer<A>>
    where
        Q: Message + 'static,
        A: Message + Headed + Default + 'static,
    {
        self.call_over(&self.line().await?, path, message).await
    }

    async fn call_over<Q, A>(&self, in_use: &InUse, path: &'static str, message: Q) -> Result<Answer<A>>
    where
        Q: Message + 'static,
        A: Message + Headed + Default + 'static,
    {
        let (seen, sent) = (self.seen(), SystemClock.now());
        // A server that does not answer is left for another one before the caller gives up.
        let limit = self.call_timeout / 2;
        let answer = self.answered(in_use, limit, in_use.line.wire.unary::<Q, A>(path, message)).await;
        let value = answer.map_err(|status| self.judge(in_use.number, status))?;
        let revision = value.header().map_or(seen, |header| header.revision);
        if revision < seen {
            let why = format!("the cluster went back from revision {seen} to {revision}: was it restored?");
            self.broken(in_use.number, &why);
            return Err(Error::new(ErrorKind::Unavailable, why).with_unknown_effect());
        }
        self.seen.fetch_max(revision, Ordering::Relaxed);
        Ok(Answer { value, sent, revision })
    }

    /// The answer, unless the connection ends before it comes: its own end may never be noticed. Nor does it
    /// wait for longer than `limit` for a server that gives no answers at all.
    pub(crate) async fn answered<A>(
        &self,
        in_use: &InUse,
        limit: Duration,
        answer: impl Future<Output = Result<A, Status>>,
    ) -> Result<A, Status> {
        let (mut life, asked) = (in_use.life.clone(), SystemClock.now());
        let silent = async {
            SystemClock.sleep_until(asked + limit).await;
            // One that answers others is slow, and another would be no faster.
            if self.heard.load(Ordering::Relaxed) > asked.as_nanos() {
                SystemClock.sleep_until(asked + self.call_timeout).await;
            }
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            _ = life.changed() => Err(Status::cancelled("the connection was lost")),
            () = silent => Err(Status::deadline_exceeded("no answer")),
        };
        if answer.is_ok() {
            self.heard.fetch_max(SystemClock.now().as_nanos(), Ordering::Relaxed);
        }
        answer
    }

    /// What a failure means for the connection, and for the caller.
    pub(crate) fn judge(&self, number: u64, status: Status) -> Error {
        let ends = ends_the_line(&status);
        let error = failed(status);
        if ends {
            self.broken(number, error.message());
        }
        error
    }

    /// The connection, once there is one.
    pub(crate) async fn line(&self) -> Result<InUse> {
        if let Some(in_use) = self.state.borrow().in_use() {
            return Ok(in_use);
        }
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
    pub(crate) fn up(&self, number: u64, line: Arc<Line>) -> bool {
        self.state.send_if_modified(|state| {
            if matches!(state, State::Closed) {
                return false;
            }
            *state = State::Up { number, line, life: watch::Sender::new(()) };
            true
        })
    }

    /// Takes a connection out of service, if it is still the present one.
    pub(crate) fn broken(&self, number: u64, why: &str) {
        self.state.send_if_modified(|state| match state {
            State::Up { number: current, .. } if *current == number => {
                *state = State::Down(why.to_owned());
                true
            }
            _ => false,
        });
    }

    /// Notes why the connection could not be made again.
    pub(crate) fn still_down(&self, why: &str) {
        self.state.send_if_modified(|state| {
            if let State::Down(current) = state {
                why.clone_into(current);
            }
            false
        });
    }

    pub(crate) fn close(&self) {
        self.state.send_replace(State::Closed);
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

    /// Completes once the link is closed.
    pub(crate) async fn until_closed(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| matches!(state, State::Closed)).await;
    }

    /// The greatest revision seen.
    pub(crate) fn seen(&self) -> i64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Counts from here, after the cluster went back.
    pub(crate) fn seen_from(&self, revision: i64) {
        self.seen.store(revision, Ordering::Relaxed);
    }
}

impl State {
    fn in_use(&self) -> Option<InUse> {
        let Self::Up { number, line, life } = self else { return None };
        Some(InUse { number: *number, line: Arc::clone(line), life: life.subscribe() })
    }
}
