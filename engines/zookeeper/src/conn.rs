use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use palisade_core::{BootInstant, Clock, Error, ErrorKind, Result, SystemClock};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::dial::Wire;
use crate::error::{Code, lost, unexpected};
use crate::jute::{Reader, Writer};
use crate::proto::{Reply, Request, op};

/// One connection of a session: requests go out in the order asked, answers come back in the same.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Which of the session's it is.
    pub(crate) number: u64,
    pub(crate) server: String,
    out: mpsc::UnboundedSender<Bytes>,
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    ears: Mutex<Ears>,
    /// The greatest transaction heard of.
    zxid: Arc<AtomicI64>,
    /// When something was heard last, in nanoseconds.
    heard: AtomicU64,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    /// Whoever waits for an answer, in the order asked; pings are not among them.
    waiting: VecDeque<(i32, BootInstant, oneshot::Sender<Reply>)>,
    /// When pings were sent that are not answered yet.
    pings: VecDeque<BootInstant>,
    /// When the last ping that was answered was sent.
    pinged: Option<BootInstant>,
    over: Option<Code>,
}

#[derive(Debug, Default)]
struct Ears {
    nodes: HashMap<String, Vec<Arc<Ear>>>,
    trees: Vec<(String, Arc<Ear>)>,
    deaf: bool,
}

/// Hears that something happened to a node.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    events: AtomicU64,
    told: Notify,
}

impl Ear {
    const DEAF: u64 = 1 << 63;

    fn tell(&self) {
        self.events.fetch_add(1, Ordering::AcqRel);
        self.told.notify_one();
    }

    /// Completes once something has happened since the last time.
    ///
    /// # Errors
    /// The connection is no more, so that nothing will be heard.
    pub(crate) async fn something(&self) -> Result<()> {
        loop {
            let told = self.told.notified();
            let events = self.events.fetch_and(Self::DEAF, Ordering::AcqRel);
            if events & Self::DEAF != 0 {
                return Err(deaf());
            }
            if events > 0 {
                return Ok(());
            }
            told.await;
        }
    }
}

pub(crate) fn deaf() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection was lost")
}

/// An answer under way.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) sent: BootInstant,
    pub(crate) agreed: bool,
    reply: oneshot::Receiver<Reply>,
}

impl Answer {
    /// Waits for it, however long that takes.
    pub(crate) async fn come(self) -> Result<Reply> {
        self.reply.await.map_err(|_| lost())
    }
}

impl Conn {
    /// Takes a stream into service on which a session has been established.
    pub(crate) fn serve(number: u64, server: &str, wire: Pin<Box<dyn Wire>>, zxid: &Arc<AtomicI64>) -> Self {
        let (reader, writer) = tokio::io::split(wire);
        let shared = Arc::new(Shared { zxid: Arc::clone(zxid), ..Shared::default() });
        shared.heard.store(SystemClock.now().as_nanos(), Ordering::Relaxed);
        let (out, queue) = mpsc::unbounded_channel();
        let ending = Arc::clone(&shared);
        let reading = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                let code = read(reader, &shared).await;
                shared.end(code);
            }
        });
        let writing = tokio::spawn(async move {
            write(writer, queue).await;
            ending.end(Code::CONNECTION_LOSS);
        });
        let tasks = [reading.abort_handle(), writing.abort_handle()];
        Self { number, server: server.to_owned(), out, shared, tasks }
    }

    /// Sends a request at once; those of one connection are answered in the order sent.
    pub(crate) fn send(&self, request: Request) -> Answer {
        static NEXT: AtomicI32 = AtomicI32::new(1);
        let (answer, reply) = oneshot::channel();
        let mut pending = self.shared.pending.lock();
        let sent = SystemClock.now();
        if pending.over.is_none() {
            let xid = NEXT.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            let frame = request.body.numbered(xid, request.op);
            pending.waiting.push_back((xid, sent, answer));
            // Under the same lock, so that the order is the same.
            let _ = self.out.send(frame);
        }
        Answer { sent, agreed: request.agreed, reply }
    }

    /// Sends a ping, which the server answers without asking others.
    pub(crate) fn ping(&self) {
        const PING: i32 = -2;
        let mut pending = self.shared.pending.lock();
        pending.pings.push_back(SystemClock.now());
        let _ = self.out.send(Writer::default().int(PING).int(op::PING).framed());
    }

    /// When the last ping that was answered was sent; once.
    pub(crate) fn pinged(&self) -> Option<BootInstant> {
        self.shared.pending.lock().pinged.take()
    }

    /// Since when the server owes an answer and says nothing, if it does.
    pub(crate) fn silent_since(&self) -> Option<BootInstant> {
        let pending = self.shared.pending.lock();
        let request = pending.waiting.front().map(|(_, sent, _)| *sent);
        let oldest = request.into_iter().chain(pending.pings.front().copied()).min()?;
        Some(oldest.max(BootInstant::from_nanos(self.shared.heard.load(Ordering::Relaxed))))
    }

    /// Completes with why the connection is no more.
    pub(crate) async fn ended(&self) -> Code {
        loop {
            let ended = self.shared.ended.notified();
            if let Some(code) = self.shared.pending.lock().over {
                return code;
            }
            ended.await;
        }
    }

    /// Takes it out of service.
    pub(crate) fn end(&self) {
        self.shared.end(Code::CONNECTION_LOSS);
        self.tasks.iter().for_each(AbortHandle::abort);
    }

    /// An ear for one node. Made before the request that has the server watch it.
    pub(crate) fn listen(&self, path: &str) -> Arc<Ear> {
        let ear = Arc::new(Ear::default());
        let mut ears = self.shared.ears.lock();
        if ears.deaf {
            ear.events.store(Ear::DEAF, Ordering::Release);
        } else {
            let there = ears.nodes.entry(path.to_owned()).or_default();
            there.retain(|ear| Arc::strong_count(ear) > 1);
            there.push(Arc::clone(&ear));
        }
        ear
    }

    /// An ear for a node and all below it.
    pub(crate) fn listen_below(&self, path: &str) -> Arc<Ear> {
        let ear = Arc::new(Ear::default());
        let mut ears = self.shared.ears.lock();
        if ears.deaf {
            ear.events.store(Ear::DEAF, Ordering::Release);
        } else {
            ears.trees.retain(|(_, ear)| Arc::strong_count(ear) > 1);
            ears.trees.push((path.to_owned(), Arc::clone(&ear)));
        }
        ear
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn end(&self, code: Code) {
        {
            let mut pending = self.pending.lock();
            if pending.over.is_some() {
                return;
            }
            pending.over = Some(code);
            // Whoever waits hears that no answer will come.
            pending.waiting.clear();
        }
        let mut ears = self.ears.lock();
        ears.deaf = true;
        let nodes = ears.nodes.drain().flat_map(|(_, ears)| ears).collect::<Vec<_>>();
        for ear in nodes.into_iter().chain(ears.trees.drain(..).map(|(_, ear)| ear)) {
            ear.events.store(Ear::DEAF, Ordering::Release);
            ear.told.notify_one();
        }
        drop(ears);
        self.ended.notify_waiters();
    }

    /// Passes on what a frame says.
    fn take_in(&self, frame: Bytes) -> Result<()> {
        const NOTIFICATION: i32 = -1;
        const PING: i32 = -2;
        let mut body = Reader(frame);
        let (xid, zxid, code) = (body.int()?, body.long()?, Code(body.int()?));
        if zxid > 0 {
            self.zxid.fetch_max(zxid, Ordering::Relaxed);
        }
        match xid {
            NOTIFICATION => {
                let (_kind, _state) = (body.int()?, body.int()?);
                self.tell(&body.text()?);
            }
            PING => {
                let mut pending = self.pending.lock();
                let sent = pending.pings.pop_front();
                pending.pinged = sent.or(pending.pinged);
            }
            _ => {
                let next = self.pending.lock().waiting.pop_front();
                let (expected, _, answer) = next.ok_or_else(unexpected)?;
                if expected != xid {
                    return Err(unexpected());
                }
                // Whoever asked may have gone away.
                let _ = answer.send(Reply { code, body });
                if code.ends_the_connection() {
                    return Err(crate::error::refused(code));
                }
            }
        }
        Ok(())
    }

    fn tell(&self, path: &str) {
        let mut ears = self.ears.lock();
        // A watch is for once; whoever wants to go on asks again.
        for ear in ears.nodes.remove(path).into_iter().flatten() {
            ear.tell();
        }
        for (above, ear) in &ears.trees {
            let below = path.strip_prefix(above.as_str());
            if below.is_some_and(|below| below.is_empty() || below.starts_with('/')) {
                ear.tell();
            }
        }
    }
}

/// Longer than any answer we ask for: ten thousand names of nodes.
const LONGEST: usize = 256 << 20;

async fn read(mut from: ReadHalf<Pin<Box<dyn Wire>>>, shared: &Shared) -> Code {
    const ROOM: usize = 16 << 10;
    let mut buffer = BytesMut::with_capacity(ROOM);
    loop {
        while buffer.len() >= 4 {
            let length = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize;
            if length > LONGEST {
                return Code::CONNECTION_LOSS;
            }
            if buffer.len() < length + 4 {
                buffer.reserve(length + 4 - buffer.len());
                break;
            }
            let frame = buffer.split_to(length + 4).freeze().slice(4..);
            if let Err(error) = shared.take_in(frame) {
                return crate::error::code_of(&error).unwrap_or(Code::CONNECTION_LOSS);
            }
        }
        buffer.reserve(ROOM);
        match from.read_buf(&mut buffer).await {
            Ok(read) if read > 0 => {
                shared.heard.store(SystemClock.now().as_nanos(), Ordering::Relaxed);
            }
            _ => return Code::CONNECTION_LOSS,
        }
    }
}

async fn write(mut to: WriteHalf<Pin<Box<dyn Wire>>>, mut queue: mpsc::UnboundedReceiver<Bytes>) {
    const TOGETHER: usize = 64 << 10;
    while let Some(first) = queue.recv().await {
        let mut together = BytesMut::from(&first[..]);
        while together.len() < TOGETHER {
            let Ok(next) = queue.try_recv() else { break };
            together.extend_from_slice(&next);
        }
        if to.write_all(&together).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}
