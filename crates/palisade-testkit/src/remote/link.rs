use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palisade_core::{ConnectionState, Result};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::frame;
use super::notes::Notes;
use super::wire::{Answer, Ask, Failure, Gone, Request, Said};

/// One TCP connection, over which many requests are under way at once. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Link(Arc<Line>);

/// The part that the connection's task shares.
#[derive(Debug)]
struct Line {
    frames: mpsc::Sender<Vec<u8>>,
    /// By number; `None` once the connection has ended.
    pending: Mutex<Option<HashMap<u64, Pending>>>,
    next: AtomicU64,
    /// Told that it is not wanted any more.
    end: Notify,
    limits: Limits,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// To connect, and then to be welcomed.
    pub(super) opening: Duration,
    /// To be answered, before the connection counts as dead.
    pub(super) answer: Duration,
}

#[derive(Debug)]
struct Pending {
    answer: oneshot::Sender<Result<Answer, Failure>>,
    /// A connection on which this passes without an answer is dead. `None` if it may take as long
    /// as it takes.
    due: Option<Instant>,
}

/// What the server said to a new connection.
pub(super) struct Welcome {
    pub(super) source: String,
    pub(super) gone: Vec<(String, Gone)>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The request was not sent.
    NotSent,
    /// The connection ended after it may have been.
    Lost,
    /// It cannot be sent.
    Impossible(palisade_core::Error),
}

/// Whether the answer is decided at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    AtOnce,
    /// It is answered when something happens.
    WhenReady,
}

impl Link {
    /// How many requests may wait to be written.
    const UNSENT: usize = 256;

    /// Connects and says hello.
    pub(super) async fn open(
        address: SocketAddr,
        hello: Ask,
        limits: Limits,
        notes: Arc<Notes>,
    ) -> io::Result<(Self, Welcome)> {
        let stream = timeout(limits.opening, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let (mut reader, mut writer) = stream.into_split();
        let frame = frame::encode(&Request { id: 0, ask: hello }).map_err(io::Error::other)?;
        let greeting = async {
            writer.write_all(&frame).await?;
            frame::read(&mut reader).await
        };
        let welcome = match timeout(limits.opening, greeting).await?? {
            Some(Said::Answer { answer: Ok(Answer::Welcome { source, gone }), .. }) => {
                Welcome { source, gone }
            }
            _ => return Err(io::Error::other("the server does not speak our language")),
        };
        let (frames, unsent) = mpsc::channel(Self::UNSENT);
        let line = Arc::new(Line {
            frames,
            pending: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(1),
            end: Notify::new(),
            limits,
        });
        tokio::spawn(drive(Arc::clone(&line), reader, writer, unsent, notes));
        Ok((Self(line), welcome))
    }

    pub(super) fn is_alive(&self) -> bool {
        self.0.pending.lock().is_some()
    }

    pub(super) fn end(&self) {
        self.0.end.notify_one();
    }

    /// Asks, and gets the answer with the number of the request.
    pub(super) async fn ask(&self, ask: Ask, pace: Pace) -> Result<(u64, Result<Answer, Failure>), NoAnswer> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let frame = frame::encode(&Request { id, ask }).map_err(NoAnswer::Impossible)?;
        let (answer, answered) = oneshot::channel();
        self.0.expect(id, Pending { answer, due: self.0.due(pace) })?;
        let mut waiting = Waiting { line: &self.0, id, pace, sent: false };
        if self.0.frames.send(frame).await.is_err() {
            return Err(NoAnswer::NotSent);
        }
        waiting.sent = true;
        let answer = answered.await.map_err(|_| NoAnswer::Lost)?;
        Ok((id, answer))
    }

    /// Has the server forget a request, if it can be told without waiting.
    pub(super) fn forget(&self, request: u64) {
        self.0.forget(request);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

impl Line {
    fn expect(&self, id: u64, pending: Pending) -> Result<(), NoAnswer> {
        self.pending.lock().as_mut().ok_or(NoAnswer::NotSent)?.insert(id, pending);
        Ok(())
    }

    fn forget(&self, request: u64) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(frame) = frame::encode(&Request { id, ask: Ask::Forget { request } }) {
            let _ = self.frames.try_send(frame);
        }
    }

    fn due(&self, pace: Pace) -> Option<Instant> {
        /// A limit without a bound of its own is for ever.
        const LONGEST: Duration = Duration::from_hours(24);
        (pace == Pace::AtOnce).then(|| Instant::now() + self.limits.answer.min(LONGEST))
    }

    fn take(&self, id: u64) -> Option<Pending> {
        self.pending.lock().as_mut()?.remove(&id)
    }

    /// Whether an answer is overdue; and whether one is waited for that may take long, while none
    /// is that would show that the connection is dead.
    fn health(&self) -> (bool, bool) {
        let (pending, now) = (self.pending.lock(), Instant::now());
        let all = || pending.iter().flat_map(HashMap::values);
        let overdue = all().any(|pending| pending.due.is_some_and(|due| due <= now));
        let quiet = all().next().is_some() && all().all(|pending| pending.due.is_none());
        (overdue, quiet)
    }
}

/// A request that someone waits for. Dropped early, it is taken back where it would linger.
struct Waiting<'a> {
    line: &'a Line,
    id: u64,
    pace: Pace,
    sent: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // An answer that is decided at once is on its way; whether it comes tells how the connection
        // is, also when nobody waits for it.
        if self.sent && self.pace == Pace::AtOnce {
            return;
        }
        let answered = self.line.take(self.id).is_none();
        if self.sent && !answered {
            self.line.forget(self.id);
        }
    }
}

/// Keeps a connection going until it breaks, is dead, or is not wanted any more.
async fn drive(
    line: Arc<Line>,
    mut reader: OwnedReadHalf,
    mut writer: OwnedWriteHalf,
    unsent: mpsc::Receiver<Vec<u8>>,
    notes: Arc<Notes>,
) {
    let wanted = tokio::select! {
        () = line.end.notified() => false,
        _ = listen(&line, &mut reader, &notes) => true,
        _ = frame::write_all(unsent, &mut writer) => true,
        () = watch_over(&line) => true,
    };
    if wanted {
        // Told before anyone can see that the connection has ended, and make a new one.
        notes.connection(ConnectionState::Suspended);
    }
    // Drops the senders, which is what those who wait for an answer learn it by.
    *line.pending.lock() = None;
}

async fn listen(line: &Line, reader: &mut OwnedReadHalf, notes: &Notes) -> io::Result<()> {
    while let Some(said) = frame::read(reader).await? {
        match said {
            Said::Answer { id, answer } => {
                if let Some(pending) = line.take(id) {
                    let _ = pending.answer.send(answer);
                }
            }
            Said::Gone { claim, reason } => notes.gone(&claim, reason),
        }
    }
    Ok(())
}

/// Completes once an answer is overdue. Asks for one where nothing else would show a silent end.
async fn watch_over(line: &Line) {
    let mut looks = tokio::time::interval((line.limits.answer / 4).max(Duration::from_millis(1)));
    loop {
        looks.tick().await;
        let (overdue, quiet) = line.health();
        if overdue {
            return;
        }
        if quiet {
            let id = line.next.fetch_add(1, Ordering::Relaxed);
            let (answer, _) = oneshot::channel();
            let due = line.due(Pace::AtOnce);
            if line.expect(id, Pending { answer, due }).is_ok()
                && let Ok(frame) = frame::encode(&Request { id, ask: Ask::Ping })
            {
                let _ = line.frames.try_send(frame);
            }
        }
    }
}
