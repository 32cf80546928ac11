use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::address::HostPort;
use crate::config::Login;
use crate::dial::OnPush;
use crate::frame;

/// A plain connection over which many commands are under way at once.
///
/// The library's hands every command to a task of its own, which costs an eighth of what a lock takes. Here
/// whoever asks also sends; only answers are read by a task.
#[derive(Clone)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
    /// Ends the reader with the last who could use it.
    _reader: Arc<Reader>,
}

struct Shared {
    stream: OwnedWriteHalf,
    state: Mutex<State>,
    /// Told when there is more to send than could be sent at once.
    more: Notify,
}

#[derive(Default)]
struct State {
    /// What is yet to be sent.
    unsent: Vec<u8>,
    /// Who waits for answers, in the order of the questions.
    waiting: VecDeque<Waiting>,
    /// Why nothing can be sent any more.
    ended: Option<RedisError>,
}

/// Someone who waits for the answers to one or more commands, and is told all of them at once.
struct Waiting {
    missing: usize,
    /// Those that came before the last, if there are several.
    had: Vec<Value>,
    tell: oneshot::Sender<Value>,
}

impl Waiting {
    /// Takes the next answer. Returns whether it was the last, and to be told now.
    fn take(&mut self, answer: Value) -> Option<Value> {
        self.missing -= 1;
        if self.missing == 0 && self.had.is_empty() {
            return Some(answer);
        }
        self.had.push(answer);
        (self.missing == 0).then(|| Value::Array(std::mem::take(&mut self.had)))
    }
}

struct Reader(AbortHandle);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells whoever waits that no answer will come when the reader ends, also with its runtime.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(ended());
    }
}

impl Wire {
    /// Connects, and logs in.
    pub(crate) async fn connect(
        place: &HostPort,
        login: &Login,
        db: i64,
        on_push: OnPush,
    ) -> RedisResult<Self> {
        let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
        stream.set_nodelay(true)?;
        let (answers, stream) = stream.into_split();
        let shared = Arc::new(Shared { stream, state: Mutex::default(), more: Notify::new() });
        let closing = Closing(Arc::clone(&shared));
        let reader = tokio::spawn(async move { closing.0.run(answers, on_push).await }).abort_handle();
        let wire = Self { shared, _reader: Arc::new(Reader(reader)) };
        wire.greet(login, db).await?;
        Ok(wire)
    }

    async fn greet(&self, login: &Login, db: i64) -> RedisResult<()> {
        let mut hello = redis::cmd("HELLO");
        hello.arg(3);
        if let Some(password) = &login.password {
            hello.arg("AUTH").arg(login.user.as_deref().unwrap_or("default")).arg(password);
        }
        match self.send(&hello).await?.extract_error() {
            Ok(_) => {}
            Err(error) if matches!(error.code(), Some("NOPROTO")) || is_unknown(&error) => {
                return Err((ErrorKind::RESP3NotSupported, "HELLO 3 is refused").into());
            }
            Err(error) => return Err(error),
        }
        if db != 0 {
            self.send(redis::cmd("SELECT").arg(db)).await?.extract_error()?;
        }
        // For whoever lists the server's clients. Older servers do not know it.
        self.send(redis::cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("palisade")).await?;
        Ok(())
    }

    /// Sends a command; its answer, which may be an error of the server's.
    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.post(1, |unsent| command.write_packed_command(unsent))?.await.map_err(|_| self.shared.why())
    }

    /// Sends commands with nothing of anyone else's in between; their answers, none of which is an error.
    pub(crate) async fn send_together(&self, commands: &Pipeline) -> RedisResult<Value> {
        let count = commands.cmd_iter().count();
        let answers = self.send_all(count, |unsent| unsent.extend(commands.get_packed_pipeline())).await?;
        answers.into_iter().map(Value::extract_error).collect::<RedisResult<_>>().map(Value::Array)
    }

    /// The same for so many commands that `write` packs; each answer may be an error of the server's.
    pub(crate) async fn send_all(
        &self,
        count: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> RedisResult<Vec<Value>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        match self.post(count, write)?.await.map_err(|_| self.shared.why())? {
            Value::Array(answers) if count > 1 => Ok(answers),
            answer => Ok(vec![answer]),
        }
    }

    /// Whoever waits for an answer is told that none will come.
    pub(crate) fn close(&self) {
        self.shared.close(ended());
    }

    /// Sends so many commands; where their answers will be told.
    fn post(&self, count: usize, write: impl FnOnce(&mut Vec<u8>)) -> RedisResult<oneshot::Receiver<Value>> {
        let (tell, told) = oneshot::channel();
        let mut state = self.shared.state.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let idle = state.unsent.is_empty();
        write(&mut state.unsent);
        state.waiting.push_back(Waiting { missing: count, had: Vec::new(), tell });
        // What does not fit now is sent by the reader, and everything after it too.
        if idle && !self.shared.flush(&mut state) {
            self.shared.more.notify_one();
        }
        Ok(told)
    }
}

impl Shared {
    /// Sends what can be sent now. Whether that is all; a connection that broke is found by the reader.
    fn flush(&self, state: &mut State) -> bool {
        while !state.unsent.is_empty() {
            match self.stream.try_write(&state.unsent) {
                Ok(sent) => drop(state.unsent.drain(..sent)),
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads answers and sends what is left over, until the connection ends.
    async fn run(&self, answers: OwnedReadHalf, on_push: OnPush) {
        let error = tokio::select! {
            ended = self.read(answers, &on_push) => ended,
            ended = self.write() => ended,
        }
        .err()
        .unwrap_or_else(ended);
        tracing::debug!(%error, "a connection ended");
        self.close(error);
        on_push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
    }

    async fn read(&self, mut answers: OwnedReadHalf, on_push: &OnPush) -> RedisResult<()> {
        const CHUNK: usize = 64 * 1024;
        let mut bytes: Vec<u8> = Vec::with_capacity(4096);
        loop {
            bytes.reserve(4096);
            // Whoever tries to read finds out by another call that there is no more; this one sees it by what it got.
            if answers.read_buf(&mut bytes).await? == 0 {
                return Err(ended());
            }
            let mut done = 0;
            while let Some((value, length)) = frame::first(&bytes[done..])? {
                done += length;
                self.take(value, on_push);
            }
            bytes.drain(..done);
            // One large answer is no reason to keep so much for ever.
            if bytes.is_empty() && bytes.capacity() > CHUNK {
                bytes = Vec::with_capacity(4096);
            }
        }
    }

    async fn write(&self) -> RedisResult<()> {
        loop {
            self.more.notified().await;
            loop {
                self.stream.writable().await?;
                let mut state = self.state.lock();
                match self.stream.try_write(&state.unsent) {
                    Ok(sent) => drop(state.unsent.drain(..sent)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error.into()),
                }
                if state.unsent.is_empty() {
                    break;
                }
            }
        }
    }

    fn take(&self, value: Value, on_push: &OnPush) {
        let answer = match value {
            // The answer to SUBSCRIBE comes as a message.
            Value::Push { kind: PushKind::Subscribe | PushKind::Unsubscribe, .. } => Value::Okay,
            Value::Push { kind, data } => return on_push(PushInfo { kind, data }),
            answer => answer,
        };
        let told = {
            let mut state = self.state.lock();
            let all = state.waiting.front_mut().and_then(|waiting| waiting.take(answer));
            all.and_then(|all| Some((state.waiting.pop_front()?.tell, all)))
        };
        if let Some((tell, all)) = told {
            // Nobody may want it any more.
            let _ = tell.send(all);
        }
    }

    fn close(&self, why: RedisError) {
        let waiting = {
            let mut state = self.state.lock();
            state.ended.get_or_insert(why);
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }

    fn why(&self) -> RedisError {
        self.state.lock().ended.clone().unwrap_or_else(ended)
    }
}

fn is_unknown(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("unknown command"))
}

fn ended() -> RedisError {
    io::Error::from(io::ErrorKind::ConnectionAborted).into()
}
