//! Other processes that take part in a bench: the same program in a hidden role.
//!
//! A worker is told what to do on its standard input, where an engine's password is seen by nobody,
//! and ends when that is closed: however the bench ends, no worker stays.

use std::io::{BufRead, Read, Write};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::{join_all, try_join_all};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Notify;

use crate::crowd::{Share, take_turns, take_turns_bare, take_turns_together, take_turns_together_bare};
use crate::raw::Entry;
use crate::target::{Target, connect, counted, sum};
use crate::usage;

/// The hidden argument that makes a program a worker of a bench; it then calls [`worker_main`].
pub const WORKER: &str = "__bench-worker";

/// What a worker is to do.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Take the crowd's resource so often.
    Turns { turns: usize, counted: bool },
    /// Let so many clients, each with a connection of its own, take the resource so often: as a program of others does.
    Clients { size: usize, turns: usize },
    /// The same in the raw limit's line.
    BareClients { size: usize, turns: usize },
    /// Take turns so often in the raw limit's line.
    BareTurns { turns: usize, place: usize, of: usize },
    /// Take the resource with this TTL and keep it.
    Hold { ttl: Duration },
    /// Take so many below the resource, and keep them so long: what that takes of memory.
    HoldMany { held: usize, ttl: Duration, keep: Duration },
    /// Take the raw limit's lock and keep it.
    BareHold,
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    engine: String,
    url: String,
    namespace: String,
    resource: String,
    raw: String,
    job: Job,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// It has joined, or holds.
    Ready,
    /// It is done.
    Done(Share),
    Failed(String),
}

/// A worker, seen from the bench; killed when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    words: Lines<BufReader<ChildStdout>>,
    /// Closed when dropped, which ends the worker.
    order: ChildStdin,
}

/// A worker that has had its turns, and waits to be let go: what it does then is no part of the others' turns.
pub(crate) struct Finished(Worker);

impl Finished {
    /// Lets it go.
    pub(crate) async fn end(self) -> Result<()> {
        let Worker { mut child, order, .. } = self.0;
        drop(order);
        let status = child.wait().await?;
        if !status.success() {
            bail!("a worker failed: {status}");
        }
        Ok(())
    }
}

impl Worker {
    pub(crate) async fn start(target: &Target, resource: &str, job: Job) -> Result<Self> {
        let mut child = Command::new(&target.program)
            .arg(WORKER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker process")?;
        let stdout = child.stdout.take().context("a worker's output is piped")?;
        let mut stdin = child.stdin.take().context("a worker's input is piped")?;
        let order = Order {
            engine: target.engine.to_owned(),
            url: target.url.clone(),
            namespace: target.namespace.clone(),
            resource: resource.to_owned(),
            raw: target.raw.address(),
            job,
        };
        stdin.write_all(format!("{}\n", serde_json::to_string(&order)?).as_bytes()).await?;
        Ok(Self { child, words: BufReader::new(stdout).lines(), order: stdin })
    }

    /// Returns once it has joined, or holds.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        match self.next().await? {
            Word::Ready => Ok(()),
            other => bail!("a worker was to say that it is ready, not {other:?}"),
        }
    }

    /// Waits until it has had all its turns; what it had.
    pub(crate) async fn share(mut self) -> Result<(Share, Finished)> {
        let Word::Done(share) = self.next().await? else { bail!("a worker was to be done") };
        Ok((share, Finished(self)))
    }

    /// Kills it with −9 and does not wait for the kernel.
    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.child.start_kill()?)
    }

    async fn next(&mut self) -> Result<Word> {
        let Some(line) = self.words.next_line().await? else {
            bail!("a worker ended without a word: {}", self.child.wait().await?);
        };
        match serde_json::from_str(&line)? {
            Word::Failed(problem) => bail!("a worker failed: {problem}"),
            word => Ok(word),
        }
    }
}

/// Acts as the worker that this process was started as.
pub fn worker_main() -> ExitCode {
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let _ = say(&Word::Failed(format!("{problem:#}")));
            ExitCode::FAILURE
        }
    }
}

fn act() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line).context("a worker is started by `palisade bench`")?;
    let let_go = Arc::new(LetGo::default());
    let heard = Arc::clone(&let_go);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        heard.told.notify_one();
        if !heard.done.load(Ordering::SeqCst) {
            std::process::exit(1);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(obey(&order, &let_go))
}

/// Whether a worker has had its turns, and may end.
#[derive(Debug, Default)]
struct LetGo {
    done: AtomicBool,
    told: Notify,
}

impl LetGo {
    /// Tells what was had, and waits until all others had theirs.
    async fn done(&self, share: Share) -> Result<()> {
        self.done.store(true, Ordering::SeqCst);
        say(&Word::Done(Share { rss_mib: usage::rss_mib(), ..share }))?;
        self.told.notified().await;
        Ok(())
    }
}

async fn obey(order: &Order, let_go: &LetGo) -> Result<()> {
    let raw = async || -> Result<_> { (Entry::of_engine(&order.engine)?.attach)(&order.raw)?.client().await };
    match order.job {
        Job::Turns { turns, counted: false } => {
            let client = connect(&order.url, &order.namespace).await?;
            client.mutex(&own_key(order))?.acquire().await?.release().await?;
            let share = take_turns(&client, &order.resource, turns).await?;
            let_go.done(share).await?;
            client.close().await;
            Ok(())
        }
        Job::Turns { turns, counted: true } => {
            let settings = palisade::Client::builder();
            let (client, calls) = counted(&order.url, &order.namespace, settings).await?;
            let mut share = take_turns(&client, &order.resource, turns).await?;
            share.calls = sum(&calls);
            let_go.done(share).await?;
            client.close().await;
            Ok(())
        }
        Job::Clients { size, turns } => clients(order, size, turns, let_go).await,
        Job::BareClients { size, turns } => {
            let clients = try_join_all((0..size).map(|_| raw())).await?;
            let_go.done(take_turns_together_bare(&clients, turns).await?).await
        }
        Job::BareTurns { turns, place, of } => {
            let raw = raw().await?;
            raw.pair(&own_key(order)).await?;
            raw.join(place, of).await?;
            say(&Word::Ready)?;
            let_go.done(take_turns_bare(&*raw, turns).await?).await
        }
        Job::Hold { ttl } => {
            let settings = palisade::Client::builder().namespace(&order.namespace).ttl(ttl);
            let client = settings.connect(&order.url).await?;
            let _guard = client.mutex(&order.resource)?.acquire().await?;
            say(&Word::Ready)?;
            std::future::pending().await
        }
        Job::HoldMany { held, ttl, keep } => {
            let settings = palisade::Client::builder().namespace(&order.namespace).ttl(ttl);
            let client = settings.connect(&order.url).await?;
            let mut guards = Vec::with_capacity(held);
            for number in 0..held {
                guards.push(client.mutex(&format!("{}/{number}", order.resource))?.acquire().await?);
            }
            tokio::time::sleep(keep).await;
            let_go.done(Share::default()).await?;
            for guard in guards {
                guard.release().await?;
            }
            client.close().await;
            Ok(())
        }
        Job::BareHold => {
            let raw = raw().await?;
            raw.hold().await?;
            say(&Word::Ready)?;
            std::future::pending().await
        }
    }
}

async fn clients(order: &Order, size: usize, turns: usize, let_go: &LetGo) -> Result<()> {
    let connecting = (0..size).map(|_| connect(&order.url, &order.namespace));
    let clients = try_join_all(connecting).await?;
    let share = take_turns_together(&clients, &order.resource, turns).await?;
    let_go.done(share).await?;
    join_all(clients.iter().map(palisade::Client::close)).await;
    Ok(())
}

/// What nobody else wants. Who takes it first has seen its own program once: a hand-over that also loads it from the disk
/// says nothing about locks.
fn own_key(order: &Order) -> String {
    format!("{}-{}", order.resource, std::process::id())
}

fn say(word: &Word) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(word)?)?;
    Ok(out.flush()?)
}
