use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use palisade::{Client as Ours, Mutex, MutexGuard};
use redis::AsyncCommands;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::ours::{now, url};
use crate::server::Server;
use crate::table::milliseconds;
use crate::worker::Client;

/// How long whoever dies or is robbed had asked for.
const TTL: Duration = Duration::from_millis(1_500);

/// What may come on top of a bound on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

/// Far above every wait here.
const LIMIT: Duration = Duration::from_secs(20);

/// How often a hand-over is measured.
const HAND_OVERS: usize = 5;

/// Where the cases play.
struct Stage<'a> {
    server: &'a Server,
    clients: &'a [Client],
    palisade: &'a Path,
}

/// Runs every case, tells what was seen, and returns what was not as it must be.
pub(crate) async fn run(server: &Server, clients: &[Client], palisade: &Path) -> Vec<String> {
    let stage = Stage { server, clients, palisade };
    let mut problems = Vec::new();
    let mut tell = |case: &str, outcome: Result<String>| match outcome {
        Ok(seen) => println!("    ok {case}: {seen}"),
        Err(error) => {
            println!("FAILED {case}: {error:#}");
            problems.push(format!("{case}: {error:#}"));
        }
    };
    tell("a foreign lock without TTL is waited for, and its end told", told(&stage, "redis-py", "").await);
    tell("a foreign holder is shown, not listed", shown(&stage).await);
    tell("a foreign lock whose holder died ends with its TTL", they_die(&stage).await);
    tell("our lock whose holder died ends with its TTL", we_die(&stage).await);
    tell("a foreign client is refused what we hold", refused(&stage).await);
    tell("our readers and slots keep foreign clients out, and are kept out", shared(&stage).await);
    tell("an operator can evict a foreign holder", evicted(&stage).await);
    tell("whoever deletes our key takes the lock from us, and we are told", robbed(&stage).await);
    tell("a hash at our key is somebody's lock", hash(&stage).await);
    tell("another key for the same name", pattern(&stage).await);
    if stage.client("redisson").is_ok() {
        let dialect = "dialect=redisson";
        tell("Redisson's lock is waited for, and its end told", told(&stage, "redisson", dialect).await);
        tell("Redisson's lock is waited for without the dialect, too", told(&stage, "redisson", "").await);
        tell("Redisson on a string fails, but does not get in", wrong_type(&stage).await);
    }
    problems
}

impl Stage<'_> {
    fn client(&self, name: &str) -> Result<&Client> {
        self.clients.iter().find(|client| client.name == name).with_context(|| format!("there is no {name}"))
    }

    async fn ours(&self, options: &str) -> Result<Ours> {
        Ok(Ours::builder().ttl(TTL).connect(&url(self.server.port(), options)).await?)
    }

    /// What the `palisade` command prints.
    async fn command(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.palisade);
        command.args(["--engine", &url(self.server.port(), "")]).args(args);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = timeout(LIMIT, output).await.context("palisade hangs")??;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "palisade {}: {}: {errors}", args.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Takes the lock, and tells when it was had.
async fn take(mutex: &Mutex) -> Result<(MutexGuard, Duration)> {
    let guard = mutex.acquire_within(LIMIT).await?.context("the lock was not had in time")?;
    Ok((guard, now()))
}

/// Waits until somebody waits for `name`.
async fn until_waited_for(client: &Ours, name: &str) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while client.show(name).await?.waiters.is_empty() {
        ensure!(Instant::now() < end, "nobody waits for {name}");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn told(stage: &Stage<'_>, who: &str, options: &str) -> Result<String> {
    let foreign = stage.client(who)?;
    let client = stage.ours(options).await?;
    let mutex = client.mutex("told")?;
    let mut waits = Vec::new();
    for _ in 0..HAND_OVERS {
        let holder = foreign.start(stage.server.port(), "told", &["hold"]).await?;
        ensure!(mutex.try_acquire().await?.is_none(), "we got in although {who} holds the lock");
        let waiter = tokio::spawn({
            let mutex = mutex.clone();
            async move { take(&mutex).await }
        });
        until_waited_for(&client, "told").await?;
        // Long enough for who polls to poll seldom: then being told is another thing.
        sleep(Duration::from_millis(300)).await;
        ensure!(!waiter.is_finished(), "we got in although {who} holds the lock");
        let released = holder.release().await?;
        let (guard, had) = waiter.await??;
        waits.push(had.checked_sub(released).context("we got in before the lock was given back")?);
        guard.release().await?;
    }
    client.close().await;
    waits.sort();
    let (median, longest) = (waits[HAND_OVERS / 2], waits[HAND_OVERS - 1]);
    ensure!(longest < SLACK, "we learned of it after {longest:?}");
    Ok(format!("{} in the median, {} at most", milliseconds(median), milliseconds(longest)))
}

async fn shown(stage: &Stage<'_>) -> Result<String> {
    let holder = stage.client("redis-py")?.start(stage.server.port(), "shown", &["hold"]).await?;
    let show = stage.command(&["show", "shown"]).await?;
    ensure!(show.contains("holds"), "show says {show:?}");
    let list = stage.command(&["ls"]).await?;
    ensure!(!list.contains("shown"), "ls says {list:?}");
    holder.release().await?;
    let free = stage.command(&["show", "shown"]).await?;
    ensure!(free.trim() == "free", "after the release show says {free:?}");
    let line = show.lines().find(|line| line.contains("holds")).unwrap_or_default();
    Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

async fn they_die(stage: &Stage<'_>) -> Result<String> {
    let client = stage.ours("").await?;
    let ttl = TTL.as_millis().to_string();
    let holder = stage.client("redis-py")?.start(stage.server.port(), "dead", &["hold", &ttl]).await?;
    holder.kill().await?;
    let start = now();
    let (guard, had) = take(&client.mutex("dead")?).await?;
    let waited = had.saturating_sub(start);
    ensure!(waited > TTL / 3 && waited < TTL + SLACK, "we got in after {waited:?}, the TTL was {TTL:?}");
    guard.release().await?;
    client.close().await;
    Ok(format!("TTL {}, we got in after {}", milliseconds(TTL), milliseconds(waited)))
}

async fn we_die(stage: &Stage<'_>) -> Result<String> {
    let ttl = TTL.as_millis().to_string();
    let (port, foreign) = (stage.server.port(), stage.client("redis-py")?);
    let holder = Client::of_our_own("palisade")?.start(port, "ours-dead", &["hold", &ttl]).await?;
    let mut waiter = foreign.start(port, "ours-dead", &["turns", "1", "0", "heir"]).await?;
    holder.kill().await?;
    waiter.go().await?;
    let wait = waiter.outcome().await?.max_wait;
    ensure!(wait > TTL / 3 && wait < TTL + SLACK, "redis-py got in after {wait:?}, the TTL was {TTL:?}");
    Ok(format!("TTL {}, redis-py got in after {}", milliseconds(TTL), milliseconds(wait)))
}

async fn refused(stage: &Stage<'_>) -> Result<String> {
    let client = stage.ours("").await?;
    let (guard, _) = take(&client.mutex("refused")?).await?;
    // Longer than the TTL: what counts is that we renew.
    sleep(TTL + TTL / 2).await;
    let foreign = stage.client("redis-py")?;
    let said = foreign.attempt(stage.server.port(), "refused").await?;
    ensure!(said == "refused" && guard.is_valid(), "redis-py was {said}, our guard is {guard:?}");
    guard.release().await?;
    let said = foreign.attempt(stage.server.port(), "refused").await?;
    ensure!(said == "taken", "after our release redis-py was {said}");
    client.close().await;
    Ok("refused while we held it for longer than the TTL, let in afterwards".to_owned())
}

async fn shared(stage: &Stage<'_>) -> Result<String> {
    let (port, foreign) = (stage.server.port(), stage.client("redis-py")?);
    let client = stage.ours("").await?;
    let lock = client.rw_lock("shared")?;
    let (one, two) = (lock.read().await?, client.rw_lock("shared")?.read().await?);
    let slot = client.semaphore("slots", 3)?.acquire().await?;
    // The one whose end comes first must not open the door for others.
    one.release().await?;
    for key in ["shared", "slots"] {
        let said = foreign.attempt(port, key).await?;
        ensure!(said == "refused", "redis-py was {said} {key}");
    }
    two.release().await?;
    slot.release().await?;
    let reader = foreign.start(port, "shared", &["hold"]).await?;
    let slots = foreign.start(port, "slots", &["hold"]).await?;
    ensure!(lock.try_read().await?.is_none(), "we read although redis-py holds the lock");
    ensure!(client.semaphore("slots", 3)?.try_acquire().await?.is_none(), "we got a slot of redis-py's lock");
    reader.release().await?;
    slots.release().await?;
    client.close().await;
    Ok("redis-py was refused while we read or had a slot, and we while it held".to_owned())
}

async fn evicted(stage: &Stage<'_>) -> Result<String> {
    let holder = stage.client("redis-py")?.start(stage.server.port(), "evicted", &["hold"]).await?;
    let client = stage.ours("").await?;
    let view = client.show("evicted").await?;
    let claim = view.holders.first().context("the foreign holder is not shown")?.claim;
    client.evict("evicted", claim, "it hangs").await?;
    let guard = client.mutex("evicted")?.try_acquire().await?.context("the lock is still held")?;
    guard.release().await?;
    holder.kill().await?;
    client.close().await;
    Ok("gone at once, and the lock was ours".to_owned())
}

/// What `ShedLock` does by default when its own lock has expired: it deletes whatever is there.
async fn robbed(stage: &Stage<'_>) -> Result<String> {
    let (victim, heir) = (stage.ours("").await?, stage.ours("").await?);
    let (guard, _) = take(&victim.mutex("robbed")?).await?;
    let register = victim.register("robbed")?.fenced(&guard).await?;
    register.write("before").await?;
    let deleted: u32 = stage.server.connect().await?.del("robbed").await?;
    ensure!(deleted == 1, "our lock is not at the key that is its name");
    let at = now();
    let next = take(&heir.mutex("robbed")?).await?.0;
    ensure!(next.token() > guard.token(), "the token fell: {} after {}", next.token(), guard.token());
    let theirs = heir.register("robbed")?.fenced(&next).await?;
    ensure!(register.write("late").await.is_err(), "the fence let in the one who lost the lock");
    theirs.write("after").await?;
    timeout(LIMIT, guard.lost()).await.context("we were not told that the lock is lost")?;
    let told = now().saturating_sub(at);
    ensure!(told < TTL + SLACK, "we were told after {told:?}");
    ensure!(next.is_valid() && !guard.is_valid(), "the guards say {next:?} and {guard:?}");
    drop(guard);
    ensure!(next.release().await? == palisade::Released::InTime, "the loser released the heir's lock");
    victim.close().await;
    heir.close().await;
    Ok(format!(
        "told after {} with a TTL of {}; the fence refused at once",
        milliseconds(told),
        milliseconds(TTL)
    ))
}

/// Redisson's layout without Redisson, so that it is tried everywhere.
async fn hash(stage: &Stage<'_>) -> Result<String> {
    let mut server = stage.server.connect().await?;
    let _: () = server.hset("hash", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1).await?;
    let client = stage.ours("").await?;
    let mutex = client.mutex("hash")?;
    ensure!(mutex.try_acquire().await?.is_none(), "we got in although the key is taken");
    let waiter = tokio::spawn(async move { take(&mutex).await });
    until_waited_for(&client, "hash").await?;
    let at = now();
    let _: () = server.del("hash").await?;
    let (guard, had) = waiter.await??;
    let wait = had.saturating_sub(at);
    ensure!(wait < SLACK, "we learned of its end after {wait:?}");
    guard.release().await?;
    client.close().await;
    Ok(format!("waited for, and had {} after it was deleted", milliseconds(wait)))
}

async fn pattern(stage: &Stage<'_>) -> Result<String> {
    let key = "job-lock:default:report";
    let holder = stage.client("redis-py")?.start(stage.server.port(), key, &["hold"]).await?;
    let client = stage.ours("key=job-lock:default:{name}").await?;
    let mutex = client.mutex("report")?;
    ensure!(mutex.try_acquire().await?.is_none(), "we got in although {key} is taken");
    holder.release().await?;
    take(&mutex).await?.0.release().await?;
    client.close().await;
    Ok(format!("{key} is the lock of `report` with key=job-lock:default:{{name}}"))
}

async fn wrong_type(stage: &Stage<'_>) -> Result<String> {
    let client = stage.ours("").await?;
    let (guard, _) = take(&client.mutex("string")?).await?;
    let said = stage.client("redisson")?.attempt(stage.server.port(), "string").await?;
    ensure!(said == "wrongtype" && guard.is_valid(), "Redisson was {said}, our guard is {guard:?}");
    guard.release().await?;
    client.close().await;
    Ok("WRONGTYPE".to_owned())
}
