use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use palisade_core::memory::MemoryEngine;
use palisade_core::{
    Change, Clock, Condition, Engine, Error, ErrorKind, Evicted, Name, Page, Raise, Result, Selector, Signal,
    SystemClock, Waited, WatchStream,
};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::frame;
use super::server::Server;
use super::wire::{
    Answer, Ask, Failure, HowClaimed, HowRead, HowRenewed, HowWaited, HowWritten, Key, Request, Said, Stamp,
    Told,
};

/// How many messages wait for a slow client before it is not listened to any more.
const UNSENT: usize = 256;

/// Serves one connection until either side ends it.
pub(super) async fn serve(stream: TcpStream, server: Arc<Server>) {
    let _ = stream.set_nodelay(true);
    let (mut reader, mut writer) = stream.into_split();
    let (said, unsent) = mpsc::channel(UNSENT);
    let listen = async {
        let mut serving = Serving::begin(&mut reader, server, Voice(said)).await?;
        serving.listen(&mut reader).await
    };
    // Ending either ends both, and with them every wait and watch of this connection.
    let _: io::Result<()> = tokio::select! {
        ended = listen => ended,
        ended = frame::write_all(unsent, &mut writer) => ended,
    };
}

/// Where answers go.
#[derive(Clone)]
struct Voice(mpsc::Sender<Vec<u8>>);

impl Voice {
    async fn say(&self, said: &Said) -> io::Result<()> {
        let frame = frame::encode(said).map_err(io::Error::other)?;
        self.0.send(frame).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn answer(&self, id: u64, answer: Result<Answer>) -> io::Result<()> {
        self.say(&Said::Answer { id, answer: answer.map_err(|error| Failure::from(&error)) }).await
    }
}

struct Serving {
    server: Arc<Server>,
    engine: Arc<MemoryEngine>,
    voice: Voice,
    /// Waits, watches, and what tells of claims that ended.
    tasks: JoinSet<()>,
    /// By request, those that can be forgotten; with when to clear up.
    running: HashMap<u64, AbortHandle>,
    clear_up_at: usize,
    watches: HashMap<u64, Arc<tokio::sync::Mutex<WatchStream>>>,
}

impl Serving {
    /// Takes in the client's first request.
    async fn begin(reader: &mut OwnedReadHalf, server: Arc<Server>, voice: Voice) -> io::Result<Self> {
        let first: Option<Request> = frame::read(reader).await?;
        let Some(Request { id, ask: Ask::Hello { session, namespace, held } }) = first else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let engine = server.session(namespace, session);
        // Before the look at what is held, so that no end falls between the two.
        let signals = engine.signals().subscribe();
        let mut serving = Self {
            server,
            engine,
            voice,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            clear_up_at: 64,
            watches: HashMap::new(),
        };
        let welcome = serving.welcome(&held);
        serving.voice.answer(id, welcome).await?;
        serving.tasks.spawn(tell_ends(signals, serving.voice.clone()));
        Ok(serving)
    }

    fn welcome(&self, held: &[Key]) -> Result<Answer> {
        let mut gone = Vec::new();
        for key in held {
            let claim = key.claim()?;
            if let Some(Ok(Waited::Gone(reason))) = self.engine.wait(&claim).now_or_never() {
                gone.push((key.id.clone(), reason.into()));
            }
        }
        Ok(Answer::Welcome { source: self.engine.source().to_string(), gone })
    }

    async fn listen(&mut self, reader: &mut OwnedReadHalf) -> io::Result<()> {
        while let Some(Request { id, ask }) = frame::read(reader).await? {
            let received = Stamp(SystemClock.now());
            while self.tasks.try_join_next().is_some() {}
            let answer = match ask {
                Ask::Forget { request } => {
                    self.forget(request);
                    continue;
                }
                Ask::Wait(key) => self.wait(id, &key, received),
                Ask::Watch(selection) => match Selector::try_from(selection) {
                    Ok(selector) => self.watch(id, &selector).await.map(Some),
                    Err(error) => Err(error),
                },
                Ask::Next { watch } => self.next(id, watch).map(|()| None),
                other => self.decide(other, received).await.map(Some),
            };
            // `None` is answered later.
            if let Some(answer) = answer.transpose() {
                self.voice.answer(id, answer).await?;
            }
        }
        Ok(())
    }

    fn forget(&mut self, request: u64) {
        self.watches.remove(&request);
        if let Some(task) = self.running.remove(&request) {
            task.abort();
        }
    }

    /// Does something that may take long, and can be forgotten.
    fn run(&mut self, id: u64, task: impl Future<Output = ()> + Send + 'static) {
        if self.running.len() >= self.clear_up_at {
            self.running.retain(|_, task| !task.is_finished());
            self.clear_up_at = self.running.len() * 2 + 64;
        }
        self.running.insert(id, self.tasks.spawn(task));
    }

    fn wait(&mut self, id: u64, key: &Key, received: Stamp) -> Result<Option<Answer>> {
        let (claim, engine, voice) = (key.claim()?, Arc::clone(&self.engine), self.voice.clone());
        let mut wait = async move { engine.wait(&claim).await }.boxed();
        if let Some(waited) = (&mut wait).now_or_never() {
            return Ok(Some(Answer::Waited(HowWaited::new(waited?, received))));
        }
        self.run(id, async move {
            let answer = wait.await.map(|_| Answer::Waited(HowWaited::LookAgain));
            let _ = voice.answer(id, answer).await;
        });
        Ok(None)
    }

    async fn watch(&mut self, id: u64, selector: &Selector) -> Result<Answer> {
        let events = self.engine.watch(selector).await?;
        self.watches.insert(id, Arc::new(tokio::sync::Mutex::new(events)));
        Ok(Answer::Watching)
    }

    fn next(&mut self, id: u64, watch: u64) -> Result<()> {
        let events = self.watches.get(&watch).map(Arc::clone);
        let events = events.ok_or_else(|| Error::new(ErrorKind::Invalid, "there is no such watch"))?;
        let voice = self.voice.clone();
        self.run(id, async move {
            let answer = next_event(&mut *events.lock().await).await;
            let _ = voice.answer(id, answer).await;
        });
        Ok(())
    }

    /// Does what is done at once.
    async fn decide(&self, ask: Ask, received: Stamp) -> Result<Answer> {
        let engine = &self.engine;
        Ok(match ask {
            Ask::Claim(new) => {
                let claimed = self.server.claim(engine, &new.claim()?)?;
                Answer::Claimed(HowClaimed::new(&claimed, received))
            }
            Ask::Change(key, change) => {
                Answer::Changed(engine.change(&key.claim()?, &Change::from(change)).await?.into())
            }
            Ask::Renew(keys) => {
                let renewed = engine.renew(&claims(&keys)?).await?.into_iter();
                Answer::Renewed(renewed.map(|renewed| HowRenewed::new(renewed, received)).collect())
            }
            Ask::Withdraw(keys) => {
                let withdrawn = self.server.withdraw(engine, &claims(&keys)?)?;
                Answer::Withdrawn(withdrawn.into_iter().map(Into::into).collect())
            }
            Ask::Inspect(selection, paging) => {
                let (selector, page) = (Selector::try_from(selection)?, Page::try_from(paging)?);
                Answer::Inspected((&engine.inspect(&selector, &page).await?).into())
            }
            Ask::Evict { claim, reason } => {
                let (resource, id) = claim.parts()?;
                Answer::Evicted(engine.evict(&resource, id, &reason).await? == Evicted::Done)
            }
            Ask::Read(register, raise) => {
                let raise = raise.map(Raise::try_from).transpose()?;
                let reading = engine.read(&Name::from_stored(&register)?, raise.as_ref()).await?;
                Answer::Read(HowRead::try_from(&reading)?)
            }
            Ask::Write { register, value, condition, expires_in } => {
                let (register, condition) = (Name::from_stored(&register)?, Condition::try_from(condition)?);
                let written = match value {
                    None => engine.delete(&register, &condition).await?,
                    Some(value) => {
                        let expires_in = expires_in.map(Duration::from_nanos);
                        engine.write(&register, value.0, &condition, expires_in).await?
                    }
                };
                Answer::Written(HowWritten::try_from(&written)?)
            }
            Ask::Ping => Answer::Pong,
            Ask::Hello { .. } | Ask::Wait(_) | Ask::Watch(_) | Ask::Next { .. } | Ask::Forget { .. } => {
                return Err(Error::new(ErrorKind::Invalid, "not now"));
            }
        })
    }
}

fn claims(keys: &[Key]) -> Result<Vec<Arc<palisade_core::Claim>>> {
    keys.iter().map(Key::claim).collect()
}

async fn next_event(events: &mut WatchStream) -> Result<Answer> {
    loop {
        let Some(event) = events.next().await else { return Ok(Answer::WatchEnded) };
        if let Some(told) = Told::new(&event?) {
            return Ok(Answer::Told(told));
        }
    }
}

/// Tells the client which of its claims have ended.
async fn tell_ends(mut signals: broadcast::Receiver<Signal>, voice: Voice) {
    loop {
        match signals.recv().await {
            Ok(Signal::Gone { claim, reason }) => {
                let said = Said::Gone { claim: claim.to_string(), reason: reason.into() };
                if voice.say(&said).await.is_err() {
                    return;
                }
            }
            // What was missed is found out by the next renewal of each claim.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
