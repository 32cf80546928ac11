use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use palisade::{Client, Engine, Released, Stale};
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};

use super::Event;
use crate::Way;
use crate::lock::{Lock, LockGuard};

/// The taker program: `palisade-taker URL NAME (mutex|write|one_slot) TTL-MILLISECONDS`.
pub fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.context("no runtime").and_then(|runtime| {
        let outcome = runtime.block_on(run());
        // A read of the standard input cannot be cancelled; waiting for it would be for ever.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&Event::Failed { error: format!("{error:#}") });
            ExitCode::FAILURE
        }
    }
}

/// One line per event, written at once: the suite may kill this process right after it.
fn tell(event: &Event) {
    let mut line = serde_json::to_string(event).unwrap_or_default();
    line.push('\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

async fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, name, way, ttl] = arguments.as_slice() else {
        bail!("usage: palisade-taker URL NAME (mutex|write|one_slot) TTL-MILLISECONDS");
    };
    let way = Way::ALL.into_iter().find(|known| known.name() == way).context("no such way")?;
    let ttl = Duration::from_millis(ttl.parse().context("the TTL is a number of milliseconds")?);
    let client = crate::open(url, Client::builder().label("palisade-taker").ttl(ttl)).await?;
    let lock = Lock::new(&client, way, name)?;
    let mut terminated = signal(SignalKind::terminate())?;
    tell(&Event::Ready);
    tokio::select! {
        outcome = obey(&client, &lock) => outcome?,
        // What was being done is dropped at its await, which must leave nothing behind.
        _ = terminated.recv() => {}
    }
    client.close().await;
    Ok(())
}

async fn obey(client: &Client, lock: &Lock) -> Result<()> {
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    let mut held = None;
    while let Some(command) = commands.next_line().await? {
        match command.split_once(' ').unwrap_or((&command, "")) {
            ("acquire", _) => {
                tell(&Event::Waiting);
                held = Some(take(lock).await?);
            }
            ("release", _) => give_back(held.take().context("nothing is held")?).await?,
            ("write", value) => write(client, held.as_ref().context("nothing is held")?, value).await?,
            ("rounds", count) => rounds(client, lock, count.parse()?).await?,
            ("child", _) => child(&**client.engine())?,
            ("quit", _) => return Ok(()),
            (other, _) => bail!("there is no command {other:?}"),
        }
    }
    Ok(())
}

async fn take(lock: &Lock) -> Result<Arc<LockGuard>> {
    let guard = lock.acquire().await?;
    tell(&Event::Granted { token: guard.token().to_string() });
    let (lost, guard) = (guard.lost(), Arc::new(guard));
    let judged = Arc::downgrade(&guard);
    tokio::spawn(async move {
        let reason = lost.await.to_string();
        let valid = judged.upgrade().is_some_and(|guard| guard.is_valid());
        tell(&Event::Lost { reason, valid });
    });
    Ok(guard)
}

async fn give_back(guard: Arc<LockGuard>) -> Result<()> {
    release(Arc::into_inner(guard).context("the guard is being judged; try again")?).await
}

async fn release(guard: LockGuard) -> Result<()> {
    let in_time = guard.release().await? == Released::InTime;
    tell(&Event::Released { in_time });
    Ok(())
}

/// Writes with the guard's token, without opening first: what a zombie's late write looks like.
async fn write(client: &Client, guard: &LockGuard, value: &str) -> Result<()> {
    let condition = palisade::Condition::always().token(guard.fencing_token());
    let register = client.register("guarded")?;
    match register.write(Bytes::copy_from_slice(value.as_bytes()), condition).await? {
        palisade::Written::Done(_) => tell(&Event::Written),
        palisade::Written::Refused(refusal) => tell(&Event::Refused { reason: refusal.reason.to_string() }),
    }
    Ok(())
}

/// Counts up a fenced register, one lock for each count.
async fn rounds(client: &Client, lock: &Lock, count: u32) -> Result<()> {
    for _ in 0..count {
        tell(&Event::Waiting);
        let guard = lock.acquire().await?;
        tell(&Event::Granted { token: guard.token().to_string() });
        let register = client.register("count")?.fenced(&guard).await.map_err(|problem| stale(&problem))?;
        let before: u64 = match &register.opened().value {
            Some(value) => std::str::from_utf8(value)?.parse()?,
            None => 0,
        };
        register.write((before + 1).to_string()).await.map_err(|problem| stale(&problem))?;
        release(guard).await?;
    }
    Ok(())
}

fn stale(problem: &Stale) -> anyhow::Error {
    anyhow::anyhow!("the holder's own token was refused: {problem}")
}

/// Starts a command that keeps the session alive after this process has died.
fn child(engine: &dyn Engine) -> Result<()> {
    let lifeline = engine.lifeline().context("the engine has no lifeline")?;
    let copy = lifeline.as_fd().try_clone_to_owned()?;
    fcntl_setfd(&copy, FdFlags::empty())?;
    let sleep = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    tell(&Event::Child { pid: i32::try_from(sleep.id())? });
    Ok(())
}
